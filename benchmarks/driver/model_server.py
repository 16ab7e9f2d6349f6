"""A model server that answers after a drawn delay: OpenAI's chat route over HTTP/1.1, several replicas with few slots.

    python -m benchmarks.driver.model_server --port 0 --replicas 8 --slots 32 --mean-s 2

Prints its port. Each answer is some reasoning and a kernel of its own. As little work per request as can be: it shares
the machine with the driver that is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections import deque

from benchmarks.driver.delays import drawn

MODEL = "waiting"
WINDOW = 131_072
_THOUGHT = "The operation is bound by memory, so one pass over the elements should be enough. " * 20
_KERNEL = '''Here is a kernel that does it in one pass.

```python
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel_{number}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """One block of elements; number {number}."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = x * {number}.0 + 1.0
    y = tl.where(y > 0, y, 0.01 * y)
    tl.store(out_ptr + offsets, y, mask=mask)


def triton_kernel_wrapper(x):
    """Launches one program for every block of {number}."""
    out = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    scale_kernel_{number}[grid](x, out, n, BLOCK=1024)
    return out
```
'''


class Replicas:
    """Slots of several replicas; a request takes one of the least busy replica, or waits for the first that is free."""

    def __init__(self, count: int, slots: int) -> None:
        self._busy, self._slots = [0] * count, slots
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def take(self) -> int:
        """A slot; the number of its replica."""
        replica = min(range(len(self._busy)), key=self._busy.__getitem__)
        if self._busy[replica] < self._slots:
            self._busy[replica] += 1
            return replica
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return await waiting

    def give(self, replica: int) -> None:
        """Gives it back."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(replica)
                return
        self._busy[replica] -= 1


class Server:
    """One endpoint before all replicas."""

    def __init__(self, replicas: Replicas, mean_s: float) -> None:
        self._replicas, self._mean_s = replicas, mean_s
        self._numbers = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All requests of one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lower = head.lower()
                size = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                if size:
                    await reader.readexactly(size)
                path = head.split(b" ", 2)[1]
                status, body = await self._answer(path)
                kind = b"content-type: application/json\r\n"
                writer.write(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, kind, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: bytes) -> tuple[bytes, bytes]:
        if path.endswith(b"/models"):
            return b"200 OK", json.dumps({"data": [{"id": MODEL, "max_model_len": WINDOW}]}).encode()
        if not path.endswith(b"/chat/completions"):
            return b"404 Not Found", b"{}"
        number = next(self._numbers)
        replica = await self._replicas.take()
        try:
            await asyncio.sleep(drawn(f"answer {number}", self._mean_s))
        finally:
            self._replicas.give(replica)
        message = {"role": "assistant", "content": _KERNEL.format(number=number), "reasoning_content": _THOUGHT}
        answer = {
            "id": f"r{number}", "object": "chat.completion", "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 700},
        }  # fmt: skip
        return b"200 OK", json.dumps(answer).encode()


async def _main(options: argparse.Namespace) -> None:
    server = Server(Replicas(options.replicas, options.slots), options.mean_s)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", options.port, backlog=1024, limit=2**20)
    print(listening.sockets[0].getsockname()[1], flush=True)
    async with listening:
        await listening.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver.model_server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--mean-s", type=float, default=2.0)
    asyncio.run(_main(parser.parse_args()))
