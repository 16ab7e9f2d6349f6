"""Evaluation over HTTP: an ASGI application around whatever gives verdicts.

It checks requests, lets them through in fair order, and turns verdicts and failures into answers. Whoever leaves has
the candidates killed: their evaluations are cancelled. Does not know Ray, processes, or how a verdict is reached.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect

from kb_ray.bench.access import Access
from kb_ray.bench.actor import Device
from kb_ray.bench.admission import Admission, QueueFull
from kb_ray.bench.api import infra_verdict
from kb_ray.bench.bodies import BatchBody, Candidate, EvaluateBody, Limits, problem, to_answer, to_request
from kb_ray.bench.door import OWNER, Door, refusal
from kb_ray.bench.exposition import CONTENT_TYPE, CrewCounts, Exposition
from kb_ray.bench.fair import Entry
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest
from kb_ray.bench.replies import FAULT
from kb_ray.bench.sending import OF_THE_REFERENCE
from kb_ray.bench.unread import unread
from kb_ray.errors import ConfigError, InfraError, ReferenceFault, TaskError
from kb_ray.records import Verdict

PATHS = ("/evaluate", "/evaluate/batch", "/healthz", "/metrics", "/openapi.json")
TROUBLE_RETRY_S = 5
"""When to come back after our side has failed."""
GONE = 499
"""What is noted of a request whose client left."""

Answer = TypeVar("Answer")
_bearer = HTTPBearer(auto_error=False, description="Needed unless the service listens on loopback alone.")
_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"description": "No token, or an unknown one"},
    413: {"description": "The body is too large"},
    422: {"description": "The body is no JSON, or a field cannot be used: `error` says which, and why"},
    429: {"description": "Too many requests are waiting: come back after Retry-After seconds"},
    500: {"description": "The service itself failed; this says nothing about the candidate. Try again"},
    503: {"description": "Our side failed; this says nothing about the candidate. Try again"},
}
_LOST: dict[str, Any] = {"description": "No worker will come any more: `error` says why"}


class Verifier(Protocol):
    """Whatever gives verdicts: a BenchPool. A cancelled `evaluate` has the candidate killed."""

    held_back: Callable[[], int]
    """Set here: requests that wait for a place, by which it sees how many workers are wanted."""

    async def evaluate(self, request: BenchRequest) -> Verdict: ...

    @property
    def stats(self) -> CrewCounts: ...

    @property
    def lost(self) -> str | None: ...


class Service:
    """The handlers, over one verifier. `ahead`: requests given to it beyond its capacity."""

    def __init__(
        self,
        verifier: Verifier,
        device: Device,
        *,
        queue_limit: int = 1024,
        ahead: int = 4,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._verifier, self._device = verifier, device
        self._admission = Admission(queue_limit, lambda: verifier.stats.capacity + ahead)
        queue = self._admission.queue
        # Who goes next is decided here, and late: the pool has few of the requests, and is told of the others.
        verifier.held_back = lambda: queue.waiting
        gauges: dict[str, Callable[[], float]] = {
            "waiting": lambda: queue.waiting,
            "running": lambda: queue.running,
            "capacity": lambda: verifier.stats.capacity,
        }
        self.exposition = Exposition(gauges, lambda: verifier.stats)

    async def one(self, body: EvaluateBody, request: Request) -> Response:
        """POST /evaluate."""
        wanted = self._wanted(body)
        if isinstance(wanted, Verdict):
            return JSONResponse(to_answer(wanted, body.request_id))
        [entry] = self._admission.enter(request.scope[OWNER], body.client, body.priority)
        verdict = await self._unless_gone(request, [entry], self._verdict(entry, wanted))
        return JSONResponse(to_answer(verdict, body.request_id))

    async def batch(self, body: BatchBody, request: Request) -> Response:
        """POST /evaluate/batch: the answers in the order of the requests; `infra_error` where our side failed, or the
        reference cannot be used."""
        wanted = []
        for number, candidate in enumerate(self._bounded(body.requests)):
            wanted.append(self._wanted_of_many(number, candidate))
            # References are parsed meanwhile: others must not wait for all of them.
            await asyncio.sleep(0)
        asked = [one for one in wanted if isinstance(one, BenchRequest)]
        entries = self._admission.enter(request.scope[OWNER], body.client, body.priority, len(asked))
        reached = iter(await self._unless_gone(request, entries, self._verdicts(entries, asked)))
        verdicts = [one if isinstance(one, Verdict) else next(reached) for one in wanted]
        ids = [candidate.request_id for candidate in body.requests]
        return JSONResponse([to_answer(verdict, own) for verdict, own in zip(verdicts, ids, strict=True)])

    def health(self) -> Response:
        """GET /healthz: 200 where verdicts can be given, or will be once a worker is there."""
        lost, queue = self._verifier.lost, self._admission.queue
        counts = {"ready_workers": self._verifier.stats.ready, "waiting": queue.waiting, "running": queue.running}
        if lost is not None:
            return JSONResponse({"status": "unavailable", "error": lost, **counts}, 503)
        return JSONResponse({"status": "ok", "device": self._device, **counts})

    def _wanted(self, candidate: Candidate) -> BenchRequest | Verdict:
        """What the pool is asked, or the verdict on a candidate that is too long to be read.

        Raises TaskError for what is wrong with the task, ConfigError for what is wrong with anything else.
        """
        try:
            return to_request(candidate, self.limits, self._device)
        except ConfigError as error:
            # Whoever wrote too much: a model, which is a verdict, or whoever made the task.
            verdict = unread(candidate.kernel_code, self.limits.code_chars, self._device)
            if verdict is not None:
                self.exposition.verdict(verdict, 0.0)
                return verdict
            reference = candidate.problem_code or candidate.reference_torch_code or ""
            if len(reference) > self.limits.code_chars:
                raise TaskError(str(error)) from None
            raise

    def _wanted_of_many(self, number: int, candidate: Candidate) -> BenchRequest | Verdict:
        """The same in a batch, where a task that cannot be used is no reason to refuse the others."""
        try:
            return self._wanted(candidate)
        except TaskError as error:
            return infra_verdict(str(error), reference=True)
        except ConfigError as error:
            raise ConfigError(f"requests.{number}: {error}") from None

    def _bounded(self, requests: list[Candidate]) -> list[Candidate]:
        if len(requests) > self.limits.batch:
            raise ConfigError(
                f"requests: {len(requests)} of them, {self.limits.batch} are allowed: send several batches"
            )
        return requests

    async def _verdict(self, entry: Entry, wanted: BenchRequest) -> Verdict:
        async with self._admission.place(entry):
            started = time.monotonic()
            verdict = await self._verifier.evaluate(wanted)
            self.exposition.verdict(verdict, time.monotonic() - started)
            return verdict

    async def _verdicts(self, entries: Sequence[Entry], wanted: Sequence[BenchRequest]) -> list[Verdict]:
        async def one(entry: Entry, request: BenchRequest) -> Verdict:
            try:
                return await self._verdict(entry, request)
            except InfraError as error:
                return infra_verdict(str(error), reference=isinstance(error, ReferenceFault))

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(*pair)) for pair in zip(entries, wanted, strict=True)]
        return [task.result() for task in running]

    async def _unless_gone(
        self, request: Request, entries: Sequence[Entry], work: Coroutine[Any, Any, Answer]
    ) -> Answer:
        """What `work` comes to; it is cancelled where the client leaves first. Afterwards no entry holds a place."""
        working, leaving = asyncio.create_task(work), asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise HTTPException(GONE, "the client left")
        finally:
            leaving.cancel()
            if not working.done():
                self.exposition.given_up()
                working.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)
            for entry in entries:
                self._admission.leave(entry)


async def _disconnected(request: Request) -> None:
    """Returns when the client has gone. The body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_app(service: Service, access: Access, at_end: Callable[[], Awaitable[None]] | None = None) -> FastAPI:
    """The application: its paths, its errors as `{"error": one line}`, and the door before them. `at_end`: when it
    is shut down."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if at_end is not None:
            await at_end()

    # The interactive pages would load scripts from other people's servers.
    app = FastAPI(
        title="kb_ray evaluation", version=VERIFIER_VERSION, docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Verified, timed verdicts on Triton kernels. Answers are verdicts as the Python API gives them.",
    )  # fmt: skip

    @app.post("/evaluate", responses=_REFUSALS, summary="The verdict on one candidate")
    async def evaluate(body: EvaluateBody, request: Request, _: Annotated[Any, Depends(_bearer)]) -> Response:
        return await service.one(body, request)

    @app.post("/evaluate/batch", responses=_REFUSALS, summary="Verdicts on many, in their order")
    async def evaluate_batch(body: BatchBody, request: Request, _: Annotated[Any, Depends(_bearer)]) -> Response:
        return await service.batch(body, request)

    @app.get("/healthz", responses={503: _LOST}, summary="Whether verdicts can be given")
    async def healthz() -> Response:
        return service.health()

    @app.get("/metrics", responses={401: _REFUSALS[401]}, summary="Counts for Prometheus")
    async def metrics(_: Annotated[Any, Depends(_bearer)]) -> Response:
        return Response(service.exposition.text(), media_type=CONTENT_TYPE)

    _explain_errors(app)

    def answered(path: str, code: int) -> None:
        service.exposition.response(path if path in PATHS else "other", code)

    app.add_middleware(Door, access=access, body_bytes=service.limits.body_bytes, answered=answered)
    return app


def _explain_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def unusable(_: Request, error: RequestValidationError) -> Response:
        errors = error.errors()
        of_the_reference = not set(OF_THE_REFERENCE).isdisjoint(errors[0]["loc"])
        return refusal(422, problem(errors), {FAULT: "reference"} if of_the_reference else None)

    @app.exception_handler(ConfigError)
    async def refused(_: Request, error: ConfigError) -> Response:
        return refusal(422, str(error))

    @app.exception_handler(TaskError)
    async def task(_: Request, error: TaskError) -> Response:
        return refusal(422, str(error), {FAULT: "reference"})

    @app.exception_handler(QueueFull)
    async def full(_: Request, error: QueueFull) -> Response:
        return refusal(429, str(error), {"Retry-After": str(error.retry_after_s)})

    @app.exception_handler(ReferenceFault)
    async def reference(_: Request, error: ReferenceFault) -> Response:
        said = f"the reference, or what it asks for, cannot be had here: {error}"
        return refusal(422, said, {FAULT: "reference"})

    @app.exception_handler(InfraError)
    async def trouble(_: Request, error: InfraError) -> Response:
        said = f"no verdict, and nothing said about the candidate: {error}"
        return refusal(503, said, {"Retry-After": str(TROUBLE_RETRY_S)})

    @app.exception_handler(AnyHTTPException)
    async def http(_: Request, error: AnyHTTPException) -> Response:
        if error.status_code == 400 and error.__cause__ is not None:
            # FastAPI's word for whatever its reading of a body raises but a mistake in the JSON.
            return _unread_body(error.__cause__)
        return refusal(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def ours(_: Request, error: Exception) -> Response:
        return _failed(error)


def _unread_body(why: BaseException) -> Response:
    if isinstance(why, ClientDisconnect):
        return refusal(GONE, "the client left")
    if isinstance(why, UnicodeDecodeError):
        return refusal(422, f"the body is no JSON: it is no UTF-8 (byte {why.start})")
    if isinstance(why, ValueError | RecursionError):
        return refusal(422, f"the body is no JSON that is read here: {str(why).partition(';')[0]}")
    return _failed(why)


def _failed(error: BaseException) -> Response:
    return refusal(500, f"the service itself failed, and nothing is said about the candidate: {type(error).__name__}")
