"""Whose word a refusal is: the service marks its own, and its client takes nothing else for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from kb_ray.bench import service
from kb_ray.bench.access import Access
from kb_ray.bench.bodies import Limits
from kb_ray.bench.client import AsyncBenchClient, BenchClient
from kb_ray.bench.replies import REFUSAL
from kb_ray.bench.retrying import Patience
from kb_ray.bench.service import Service
from kb_ray.errors import ConfigError, InfraError
from tests.unit.bench.http_pieces import BLAMES, BREAKS, FAILS, HANGS, StaticVerifier, arguments, client, serving
from tests.unit.bench.playing import Play, cut, playing, words

TOKEN = {"Authorization": "Bearer a-token-of-enough-characters"}

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]
REFUSED: dict[str, tuple[int, Ask]] = {
    "no token": (401, lambda http: http.post("/evaluate", json=arguments(), headers={"Authorization": ""})),
    "no such path": (404, lambda http: http.post("/wrong/evaluate", json=arguments())),
    "no such method": (405, lambda http: http.get("/evaluate")),
    "too large": (413, lambda http: http.post("/evaluate", json=arguments("x" * 3000))),
    "no JSON": (422, lambda http: http.post("/evaluate", content=b"{", headers={"Content-Type": "application/json"})),
    "no such field": (422, lambda http: http.post("/evaluate", json=arguments(kernl=1))),
    "the reference": (422, lambda http: http.post("/evaluate", json=arguments(BLAMES))),
    "a mistake of its own": (500, lambda http: http.post("/evaluate", json=arguments(BREAKS))),
    "no verdict": (503, lambda http: http.post("/evaluate", json=arguments(FAILS))),
}


@pytest.mark.parametrize(("code", "ask"), REFUSED.values(), ids=REFUSED)
async def test_every_refusal_is_marked_as_the_services_own(code: int, ask: Ask) -> None:
    access = Access({"a": TOKEN["Authorization"].split()[1]})
    async with client(access=access, limits=Limits(body_bytes=2000)) as http:
        http.headers.update(TOKEN)
        got = await ask(http)
        answer = await http.post("/evaluate", json=arguments())
    assert (got.status_code, REFUSAL in got.headers) == (code, True), got.text
    assert (answer.status_code, REFUSAL in answer.headers) == (200, False)


async def test_a_full_queue_is_told_by_the_service_itself() -> None:
    verifier = StaticVerifier(capacity=1)
    async with client(verifier, queue_limit=2, ahead=0) as http:
        asked = [asyncio.create_task(http.post("/evaluate", json=arguments(HANGS))) for _ in range(4)]
        done, left = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    got = [task.result() for task in done]
    assert got
    assert all((reply.status_code, REFUSAL in reply.headers) == (429, True) for reply in got)


def test_a_wrong_path_in_the_url_is_an_error_of_whoever_gave_it() -> None:
    # Taken for a restart it would be waited for, and in the end be nobody's mistake.
    patience = Patience(broken_s=0.2, pause_s=0.05)
    with (
        serving(Service(StaticVerifier(), "cpu")) as url,
        BenchClient(f"{url}/wrong", patience=patience) as wrong,
        pytest.raises(ConfigError, match=r"refuses: 404 Not Found: it has no path /wrong/evaluate, check the URL"),
    ):
        wrong.evaluate(**arguments())


@pytest.mark.parametrize("code", [FAILS, BREAKS])
def test_what_the_service_failed_at_is_sent_as_often_as_was_said(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "TROUBLE_RETRY_S", 0)
    verifier, patience = StaticVerifier(), Patience(broken_s=30, tries=2, pause_s=0.01)
    with (
        serving(Service(verifier, "cpu")) as url,
        BenchClient(url, patience=patience) as bench,
        pytest.raises(InfraError, match=r"nothing (is )?said about the candidate"),
    ):
        bench.evaluate(**arguments(code))
    assert len(verifier.asked) == 2


async def test_a_client_whose_own_connections_are_busy_finds_the_service_healthy() -> None:
    verifier = StaticVerifier()
    with serving(Service(verifier, "cpu")) as url:
        async with AsyncBenchClient(url, at_once=1) as bench:
            busy = asyncio.create_task(bench.evaluate(**arguments(HANGS)))
            while not verifier.running:
                await asyncio.sleep(0.01)
            # It has a connection for that beside those of its requests.
            assert await asyncio.wait_for(bench.healthy(), 60)
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)


async def test_requests_of_one_client_wait_for_each_other_and_never_for_a_connection() -> None:
    running, most, waits = 0, 0, set[float | None]()

    async def reply(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        waits.add(request.extensions["timeout"]["pool"])
        await asyncio.sleep(0)
        running -= 1
        return httpx.Response(200, json={"status": "ok"})

    async with AsyncBenchClient("http://s", at_once=3, transport=httpx.MockTransport(reply)) as bench:
        await asyncio.gather(*(bench.evaluate(**arguments()) for _ in range(12)), bench.healthy())
    assert most <= 3 + 1
    assert waits == {None}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return playing(monkeypatch)


async def test_a_path_that_the_service_itself_has_not_is_refused_at_once(play: Play) -> None:
    own = words(404, "Not Found")
    clock = play(own, back_s=100)
    with pytest.raises(ConfigError, match=r"http://s refuses: 404 Not Found: it has no path /evaluate, check the URL"):
        await clock.evaluate()
    clock = play(lambda request: (cut if clock.now < 5 else own)(request), back_s=100)
    with pytest.raises(ConfigError, match="404 Not Found"):
        await clock.evaluate()
    assert clock.now < 15


async def test_a_service_of_before_the_mark_is_understood(play: Play) -> None:
    clock = play(words(404, "Not Found", marked=False), back_s=100)
    with pytest.raises(ConfigError, match="404 Not Found"):
        await clock.evaluate()
    clock = play(words(422, "n_trials: got 0", marked=False), back_s=100)
    with pytest.raises(ConfigError, match="n_trials: got 0"):
        await clock.evaluate()
    clock = play(words(429, "the queue is full", marked=False), back_s=1000)
    assert await clock.evaluate() == {"status": "ok"}


@pytest.mark.parametrize("page", ["<html>Log in to go on</html>", '["Log in"]', "null"])
def test_something_else_than_a_verdict_is_told_at_once(page: str) -> None:
    answers = httpx.MockTransport(lambda _: httpx.Response(200, text=page))
    with (
        BenchClient("http://bench:8100", transport=answers) as there,
        pytest.raises(ConfigError, match=r"bench:8100/evaluate answers with something else than a verdict: 200 "),
    ):
        there.evaluate(**arguments())
