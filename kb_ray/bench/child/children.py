"""The judge's view of sandboxed processes: fork one from a zygote, command it, see it end, kill it.

A child's death is seen by pidfd at once and explained by the zygote's waitpid; a hang is seen by the
clock of each command; either way nothing of the child is left: its process group, its scratch folder, its
shared memory. What a child answers is data here, decoded strictly and never believed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.buffers import HostBlock
from kb_ray.bench.child.frames import MAX_FDS, Channel, FrameError, FrameTimeout, Kind, wait_readable
from kb_ray.bench.child.message import pack, unpack
from kb_ray.bench.child.provenance import State
from kb_ray.bench.child.tree import dtype_name
from kb_ray.bench.child.values import TensorRef
from kb_ray.bench.sweep import erase, kill_group

LOG_BYTES = 16 << 10
CHILD_MEMORY_BYTES = 8 << 30
START_TIMEOUT_S = 60.0


class Raised(Exception):
    """The child's code raised; `info` is what `program.describe` said of it."""

    def __init__(self, info: dict[str, Any]) -> None:
        super().__init__(str(info.get("message", "")))
        self.info = info


class Died(Exception):
    """The child's process ended, or broke its channel, before it answered."""

    def __init__(self, signal_number: int | None, exit_code: int | None, launching: bool, log: str) -> None:
        super().__init__(f"signal {signal_number}" if signal_number else f"exit code {exit_code}")
        self.signal_number, self.exit_code, self.launching, self.log = (
            signal_number,
            exit_code,
            launching,
            log,
        )


class TimedOut(Exception):
    """The child did not answer within its time."""


def refs_of(tensors: Sequence[torch.Tensor]) -> list[TensorRef]:
    return [TensorRef(i, dtype_name(t.dtype), tuple(t.shape)) for i, t in enumerate(tensors)]


@dataclass
class Ending:
    """How a child ended, told by its zygote: `status` as waitpid gives it, once `event` is set."""

    event: threading.Event = field(default_factory=threading.Event)
    status: int | None = None


class Owner(Protocol):
    """What a child needs of the zygote that forked it."""

    cuda: bool

    def forget(self, identity: int, pid: int) -> None: ...


class Child:
    """One sandboxed process. Used by one thread at a time."""

    def __init__(
        self, owner: Owner, identity: int, pid: int, pidfd: int, channel: Channel, log_fd: int,
        state: State, scratch: Path, ending: Ending,
    ) -> None:  # fmt: skip
        self.owner, self.identity, self.pid, self.pidfd = owner, identity, pid, pidfd
        self.channel, self.state, self.scratch = channel, state, scratch
        self.level = "none"
        self.blocks: dict[str, list[Any]] = {}
        self._log_fd, self._ending = log_fd, ending
        self._log, self._log_open = bytearray(), True
        self._closed = False
        self.broken = False
        """Whether it died or hung: nothing can be asked of it any more."""

    def wait_ready(self, timeout_s: float) -> None:
        ready = self._answer(timeout_s)
        self.level = str(ready.get("level"))

    def ask(self, kind: Kind, request: dict[str, Any], timeout_s: float, fds: Sequence[int] = ()) -> dict[str, Any]:
        """Send a command and wait for its answer; Raised, Died or TimedOut."""
        try:
            self.channel.send(kind, pack(**request), fds, timeout_s)
            return self._answer(timeout_s)
        except FrameTimeout:
            self.broken = True
            raise TimedOut from None
        except FrameError:
            self.broken = True
            raise self._died() from None
        except (Died, TimedOut):
            self.broken = True
            raise

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            watched = [self.channel.fileno(), self.pidfd]
            # A closed log is always ready: watched further, it would keep the judge spinning.
            watched += [self._log_fd] if self._log_open else []
            ready = wait_readable(watched, deadline - time.monotonic())
            if self._log_fd in ready:
                self._drain()
            if self.channel.fileno() in ready:
                return self._receive(deadline)
            if self.pidfd in ready:
                raise self._died()
            if time.monotonic() >= deadline:
                raise TimedOut

    def _receive(self, deadline: float) -> dict[str, Any]:
        try:
            frame = self.channel.recv(timeout_s=max(0.1, deadline - time.monotonic()))
            for fd in frame.fds:  # a child has none to give
                os.close(fd)
            answer = unpack(frame.payload)
        except FrameTimeout:
            raise TimedOut from None
        except (FrameError, wire.WireError):
            raise self._died() from None
        if frame.kind == Kind.RAISED:
            raise Raised(answer)
        return answer

    def _died(self) -> Died:
        """Wait a moment for the end of a process that broke its channel, then say how it ended."""
        if not wait_readable([self.pidfd], 0.5):
            signal_quietly(self.pid)
        self._ending.event.wait(1.0)
        self._drain()
        status = self._ending.status
        if status is None:
            return Died(None, None, self.state.launching, self.log())
        if os.WIFSIGNALED(status):
            return Died(os.WTERMSIG(status), None, self.state.launching, self.log())
        return Died(None, os.WEXITSTATUS(status), self.state.launching, self.log())

    def _drain(self) -> None:
        """Keep the last of what was printed. One read a turn: a flood must not keep the judge from its clock."""
        try:
            printed = os.read(self._log_fd, 1 << 16)
        except BlockingIOError:
            return
        self._log_open = bool(printed)
        self._log += printed
        del self._log[:-LOG_BYTES]

    def log(self) -> str:
        return self._log.decode("utf-8", "replace")

    def block(self, refs: Sequence[TensorRef]) -> Any:
        if not self.owner.cuda:
            return HostBlock(refs)
        from kb_ray.bench.child.cuda_ipc import CudaBlock

        return CudaBlock(refs)

    def put(self, slot: str, tree: wire.Tree, tensors: Sequence[torch.Tensor], timeout_s: float) -> None:
        """Give the child a private copy of `tensors` under a name."""
        replaced, self.blocks[slot] = self.blocks.get(slot, []), []
        refs = refs_of(tensors)
        step = len(refs) or 1
        if not self.owner.cuda:
            step = min(step, MAX_FDS)
        for at in range(0, max(len(refs), 1), step):
            part = refs[at : at + step]
            last = at + step >= len(refs)
            if part:
                block = self.block(part)
                self.blocks[slot].append(block)
                for target, source in zip(block.tensors, tensors[at : at + step], strict=True):
                    target.copy_(source)
                handle, fds = block.handle, block.fds
                if self.owner.cuda:
                    torch.cuda.synchronize()
            else:
                handle, fds = b"", []
            message = {
                "slot": slot,
                "refs": part,
                "handle": handle,
                "first": at == 0,
                "last": last,
                "tree": tree if last else None,
            }
            self.ask(Kind.PUT, message, timeout_s, fds)
        for block in replaced:
            block.close()

    def held(self, slot: str) -> list[torch.Tensor]:
        """The judge's own view of what was put under a name, as the child has left it."""
        return [tensor for block in self.blocks[slot] for tensor in block.tensors]

    def guards_intact(self, slot: str) -> bool:
        return all(block.guards_intact() for block in self.blocks[slot])

    def free(self, slots: Sequence[str], timeout_s: float) -> None:
        self.ask(Kind.FREE, {"slots": list(slots)}, timeout_s)
        for slot in slots:
            for block in self.blocks.pop(slot, []):
                block.close()

    def kill(self) -> None:
        """End the process and its whole group, and give back everything that was held for it."""
        if self._closed:
            return
        self._closed = True
        signal_quietly(self.pid)
        for _ in range(400):
            if kill_group(self.pid):
                break
            time.sleep(0.005)
        self._ending.event.wait(2.0)
        self.owner.forget(self.identity, self.pid)
        self.channel.close()
        self.state.close()
        os.close(self.pidfd)
        os.close(self._log_fd)
        for blocks in self.blocks.values():
            for block in blocks:
                block.close()
        self.blocks = {}
        erase(self.scratch)


def signal_quietly(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
