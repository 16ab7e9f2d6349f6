"""A model server that knows the answers of a workload and breaks on request, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aiohttp import web

from kb_ray.model.posting import Tries
from tests.chaos.running import PATIENCE_S
from tests.fixtures_run import ANSWER
from tests.unit.model.model_server import ModelServer, Reply, answers, resets, running, says, serves

_FACTOR = re.compile(r"return x \* ([\d.]+) \+ 1\.0")


async def hangs(request: web.Request) -> web.StreamResponse:
    """Nothing at all, until the client has had enough."""
    await asyncio.sleep(PATIENCE_S)
    raise AssertionError("it was waited for")


async def breaks_off(request: web.Request) -> web.StreamResponse:
    """The replica dies in mid-answer."""
    response = web.StreamResponse(headers={"Content-Length": "5000", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"choices": [{"message": {"content": "Here is')
    await asyncio.sleep(0.2)
    return await resets(request)


FAULTS: dict[str, Reply] = {
    "429": says(429, {"error": "busy"}, **{"Retry-After": "1"}),
    "503": says(503, {"error": "no replica"}),
    "reset": resets,
    "hung": hangs,
    "broken off": breaks_off,
    "malformed": says(200, '{"choices": [{"mess'),
    "no choices": says(200, {"choices": []}),
    "empty": answers(""),
    "null": answers(None),
}


MOST_FAULTS = Tries().max_retries
"""That one question meets: at its next try it is answered, since no client is promised to ask once more."""


class ErraticModel(ModelServer):
    """Serves `name`. The first chat requests get the faults of `deck`, one each and in its order; of those after them
    `share` get one by draw. `at_first`: only so many tasks are answered, and whoever asks about others waits until it
    goes on, so that no run is over before its fault, however fast the machine. Such a run has a place for each of its
    questions: held ones must not keep the others out."""

    def __init__(
        self, draw: random.Random, *, deck: Sequence[str] = (), share: float = 0.0, at_first: int | None = None
    ) -> None:
        super().__init__()
        self._at_first, self._begun, self._goes_on = at_first, set[str](), threading.Event()
        self._draw, self._deck, self._share = draw, list(deck), share
        self._met: Counter[str] = Counter()
        self.name = "tiny-model"
        self.chats = 0
        self.looks_at_names = True
        self.refused = 0
        """Requests for a name that is not served, answered all the same where nobody looks at names."""
        self.faults: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            return await serves(self.name)(request)
        if request.path != "/v1/chat/completions":
            return web.Response(status=404)
        body = await request.json()
        while not self._answers(_factor(body["messages"])):
            await asyncio.sleep(0.05)
        if body["model"] != self.name:
            self.refused += 1
        if body["model"] != self.name and self.looks_at_names:
            return await says(404, {"error": {"message": f"The model `{body['model']}` does not exist."}})(request)
        self.chats += 1
        fault = self._next_fault(json.dumps(body["messages"]))
        if fault is not None:
            self.faults.append(fault)
            return await FAULTS[fault](request)
        return await answers(_answer(body["messages"]), model=self.name)(request)

    def go_on(self) -> None:
        """From now on every task is answered."""
        self._goes_on.set()

    def _answers(self, factor: str) -> bool:
        if self._at_first is None or self._goes_on.is_set():
            return True
        if len(self._begun) < self._at_first:
            self._begun.add(factor)
        return factor in self._begun

    def _next_fault(self, question: str) -> str | None:
        if self._met[question] == MOST_FAULTS:
            return None
        if self._deck:
            fault = self._deck.pop(0)
        elif self._share and self._draw.random() < self._share:
            fault = self._draw.choice(sorted(FAULTS))
        else:
            return None
        self._met[question] += 1
        return fault


def _answer(messages: list[dict[str, str]]) -> str:
    """Wrong at first, right once there was feedback."""
    turned = any(message["role"] == "assistant" for message in messages)
    return ANSWER.format(factor=_factor(messages), shift="1.0" if turned else "2.0")


def _factor(messages: list[dict[str, str]]) -> str:
    """What tells a task of the workload from the others."""
    found = _FACTOR.search("\n".join(message["content"] for message in messages if message["role"] == "user"))
    assert found is not None, messages
    return found[1]


@contextmanager
def served(model: ErraticModel) -> Iterator[ErraticModel]:
    """`model` listening at its `url`."""
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with running(model):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        assert ready.wait(120)
        yield model
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(120)
        loop.close()
