"""How long the client of the HTTP service goes on: real servers on loopback for what it is told, a played clock for how
long it holds out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from kb_ray.bench.client import AsyncBenchClient, BenchClient
from kb_ray.bench.retrying import Attempts, Patience
from kb_ray.errors import ConfigError, InfraError
from tests.unit.bench.http_pieces import arguments
from tests.unit.bench.playing import Answer, Play, cut, fails, playing, says, words

QUICK = Patience(busy_s=30, pause_s=0.05)


@dataclass
class Replay:
    """An HTTP server that answers (code, headers) one after the other, 0: it hangs up; then a verdict's mapping."""

    answers: list[tuple[int, dict[str, str]]]
    times: list[float] = field(default_factory=list)

    @contextmanager
    def serving(self) -> Iterator[str]:
        replay = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                replay.times.append(time.monotonic())
                code, headers = replay.answers.pop(0) if replay.answers else (200, {})
                if not code:
                    self.connection.close()
                    return
                body = b'{"status": "ok"}' if code == 200 else b"<html>a proxy's page</html>"
                self.send_response(code)
                for name, value in (headers | {"Content-Length": str(len(body))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("answers", "at_least"),
    [
        ([(429, {"Retry-After": "1"})], 1.0),
        ([(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})], 0.05),
        ([(503, {"Retry-After": "1"})], 1.0),
        ([(502, {}), (504, {})], 0.15),
        ([(0, {}), (0, {})], 0.15),
    ],
)
def test_it_comes_again_after_as_long_as_it_was_told(
    answers: list[tuple[int, dict[str, str]]], at_least: float
) -> None:
    replay = Replay(list(answers))
    with replay.serving() as url, BenchClient(url, patience=QUICK) as client:
        assert client.evaluate(**arguments()) == {"status": "ok"}
    assert len(replay.times) == len(answers) + 1
    assert replay.times[-1] - replay.times[0] >= at_least


@pytest.mark.parametrize(
    ("answer", "patience", "said"),
    [
        ((429, {"Retry-After": "20"}), Patience(busy_s=5), "429 <html>a proxy's page"),
        ((503, {}), Patience(broken_s=0.01, pause_s=0.01), "503"),
        ((0, {}), Patience(broken_s=0.01, pause_s=0.01), "RemoteProtocolError|ReadError"),
    ],
)
def test_patience_has_an_end(answer: tuple[int, dict[str, str]], patience: Patience, said: str) -> None:
    replay = Replay([answer] * 20)
    with replay.serving() as url, BenchClient(url, patience=patience) as client, pytest.raises(InfraError, match=said):
        client.evaluate(**arguments())


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return playing(monkeypatch)


AWAY = {
    "cut": cut,
    "starting": says(503, "5"),
    "no page": says(502),
    "a dead replica": says(500),
    "a gateway's JSON": words(503, "upstream unavailable", marked=False),
}


@pytest.mark.parametrize("away", AWAY.values(), ids=AWAY)
async def test_a_service_that_is_away_for_minutes_is_waited_for(play: Play, away: Answer) -> None:
    clock = play(away, back_s=240)
    assert await clock.evaluate() == {"status": "ok"}
    # Often at first, and not so seldom later that its return would be missed for long.
    assert clock.asked[1] <= 8
    assert clock.now <= 240 + 45
    assert len(clock.asked) <= 60


@pytest.mark.parametrize("away", AWAY.values(), ids=AWAY)
@pytest.mark.parametrize("patience", [None, Patience(broken_s=20), Patience(broken_s=1800)])
async def test_it_is_waited_for_as_long_as_was_said_and_no_longer(
    play: Play, away: Answer, patience: Patience | None
) -> None:
    clock, wanted = play(away), (patience or Patience()).broken_s
    with pytest.raises(InfraError, match="no verdict from http://s"):
        await clock.evaluate(**({} if patience is None else {"patience": patience}))
    assert clock.now == pytest.approx(wanted)
    assert clock.asked[-1] == clock.now


async def test_a_service_that_came_back_busy_has_all_the_patience_again(play: Play) -> None:
    said_busy = False

    def away_twice(request: httpx.Request) -> httpx.Response:
        nonlocal said_busy
        if clock.now < 200 or said_busy:
            return cut(request)
        said_busy = True
        return says(429, "10")(request)

    clock = play(away_twice, back_s=420)
    assert await clock.evaluate() == {"status": "ok"}
    clock = play(cut, back_s=420)
    with pytest.raises(InfraError):
        await clock.evaluate()


async def test_paths_that_are_unknown_after_a_restart_are_waited_for_and_a_wrong_url_is_not(play: Play) -> None:
    unknown = says(404)
    clock = play(lambda request: (cut if clock.now < 5 else unknown)(request), back_s=100)
    assert await clock.evaluate() == {"status": "ok"}
    clock = play(unknown, back_s=100)
    with pytest.raises(ConfigError, match="404"):
        await clock.evaluate()
    clock.back_s = 0
    async with AsyncBenchClient("http://s", transport=httpx.MockTransport(clock.answer)) as client:
        await client.evaluate(**arguments())
        clock.back_s = clock.now + 100
        assert await client.evaluate(**arguments()) == {"status": "ok"}


async def test_a_service_is_known_by_whatever_it_says_itself(play: Play) -> None:
    clock = play(lambda request: (says(429, "3") if clock.now < 3 else says(404))(request), back_s=50)
    assert await clock.evaluate() == {"status": "ok"}


async def test_answers_that_take_long_use_the_patience_up_too(play: Play) -> None:
    def late(request: httpx.Request) -> httpx.Response:
        clock.now += 60
        return says(504)(request)

    clock = play(late)
    with pytest.raises(InfraError, match="504"):
        await clock.evaluate()
    # Not the first, which is what noticed it.
    assert 300 <= clock.now <= 300 + 2 * 60


FRUITLESS = {
    "nothing": fails(httpx.ReadTimeout),
    "its own failure": words(500, "the service itself failed"),
    "no verdict on this one": words(503, "no verdict in 3 tries"),
}


@pytest.mark.parametrize("answer", FRUITLESS.values(), ids=FRUITLESS)
async def test_a_request_that_was_taken_without_a_verdict_is_tried_a_few_times_alone(
    play: Play, answer: Answer
) -> None:
    clock = play(answer)
    with pytest.raises(InfraError, match=r"ReadTimeout|failed|no verdict in 3"):
        await clock.evaluate()
    assert len(clock.asked) == Patience().tries


def test_pauses_double_and_are_spread() -> None:
    attempts = Attempts(Patience(broken_s=100, pause_s=1.0))
    assert [attempts.broken(None, 0.0) for _ in range(9)] == [1, 2, 4, 8, 16, 30, 30, 9, None]
    assert Attempts(Patience()).broken("4", 1.0) == 6.0


def test_failures_without_end_have_pauses_still() -> None:
    attempts = Attempts(Patience(broken_s=1e9))
    assert {attempts.broken(None, 0.0) for _ in range(5000)} == {0.5, 1, 2, 4, 8, 16, 30}


@pytest.mark.parametrize("said", ["\u00b2", "-1", "1.5", "9" * 5000])
def test_a_retry_after_that_is_no_time_breaks_nothing(said: str) -> None:
    attempts = Attempts(Patience())
    assert attempts.busy(said, 0.0) in (0.5, None)
    assert attempts.broken(said, 0.0) in (0.5, 30.0)
