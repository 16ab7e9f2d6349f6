"""A verifier for tests of the HTTP service: real verdicts on what the source alone decides, and faults on demand.

Candidates name what is to happen in their first line. No process is started.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from kb_ray.bench.access import Access
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.service import Service, make_app
from kb_ray.errors import InfraError, ReferenceFault
from kb_ray.records import ErrorDetail, Verdict
from tests.fixtures_bench import KERNEL

REFERENCE = "def reference_impl(x):\n    return x + 1\n"
SHAPES = {"x": {"shape": [8]}}
HANGS, FAILS, BLAMES, RECOVERS, ODD, BREAKS = (
    f"# {what}\n" for what in ("hang", "fail", "blame", "once", "odd", "bug")
)
ENDLESS_S = 600


def forbidden(line: int) -> str:
    """A candidate whose verdict says this line, so that nobody else's can be taken for it."""
    return "\n" * (line - 1) + "import subprocess\n" + KERNEL


def arguments(code: str = forbidden(1), **more: Any) -> dict[str, Any]:
    return {"kernel_code": code, "reference_torch_code": REFERENCE, "input_shapes": SHAPES} | more


@dataclass
class StaticVerifier:
    """Stands for a pool. `capacity` places; `delay_s` before each verdict; none before `together` were asked for."""

    capacity: int = 4
    workers: int = 1
    ready: int = 1
    leaving: int = 0
    infra_retries: int = 0
    quarantined: tuple[str, ...] = ()
    delay_s: float = 0.0
    together: int = 1
    lost: str | None = None
    held_back: Callable[[], int] = lambda: 0
    running: int = 0
    most: int = 0
    cancelled: int = 0
    asked: list[BenchRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._evaluator = Evaluator("cpu")

    @property
    def stats(self) -> StaticVerifier:
        return self

    async def evaluate(self, request: BenchRequest) -> Verdict:
        self.asked.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._evaluated(request, request.kernel_code)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _evaluated(self, request: BenchRequest, code: str) -> Verdict:
        while len(self.asked) < self.together:
            await asyncio.sleep(0.01)
        await asyncio.sleep(ENDLESS_S if code.startswith(HANGS) else self.delay_s)
        tries = sum(asked.kernel_code == code for asked in self.asked)
        if code.startswith(FAILS) or (code.startswith(RECOVERS) and tries == 1):
            raise InfraError("no verdict in 3 tries: the node is gone")
        if code.startswith(BLAMES):
            raise ReferenceFault("no verdict in 2 tries: the reference raised")
        if code.startswith(BREAKS):
            raise ZeroDivisionError("a secret")
        verdict = self._evaluator.evaluate(request)
        if code.startswith(ODD):
            error = ErrorDetail(category="CORRECTNESS ERROR", message="NaN", max_abs_error=float("nan"),
                                max_rel_error=float("-inf"))  # fmt: skip
            verdict = verdict.model_copy(update={"error": error})
        return verdict


@asynccontextmanager
async def client(
    verifier: StaticVerifier | None = None, access: Access | None = None, peer: str = "127.0.0.1", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    service = Service(verifier or StaticVerifier(), "cpu", **options)
    # An error of the service's own is answered, and then raised for the log.
    transport = httpx.ASGITransport(
        make_app(service, access or Access({})), raise_app_exceptions=False, client=(peer, 1)
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
        yield http


@contextmanager
def serving(service: Service, access: Access | None = None) -> Iterator[str]:
    """The service behind a real HTTP server on loopback; its URL."""
    config = uvicorn.Config(make_app(service, access or Access({})), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = server.force_exit = True
    thread.join(10)
