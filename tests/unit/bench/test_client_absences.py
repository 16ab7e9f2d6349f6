"""What counts as an absence of the HTTP service, and what a request had rightly waited before, on a played clock."""

from __future__ import annotations

import httpx
import pytest

from kb_ray.bench.retrying import Patience
from kb_ray.errors import InfraError
from tests.unit.bench.playing import Answer, Play, cut, fails, playing, says, words

LOST: dict[str, Answer] = {
    **{error.__name__: fails(error) for error in (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError)},
    "502": says(502),
    "a dead replica": says(500),
}
TAKEN = LOST | {"ReadTimeout": fails(httpx.ReadTimeout), "its own failure": words(503, "no verdict in 3 tries")}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return playing(monkeypatch)


@pytest.mark.parametrize("lost", TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("away_before_s", [0, 250])
@pytest.mark.parametrize(("kept_s", "times", "then_away_s"), [(400, 1, 0), (100, 3, 0), (400, 1, 290), (76, 4, 290)])
async def test_what_a_request_rightly_waited_is_no_absence(
    play: Play, lost: Answer, away_before_s: float, kept_s: float, times: int, then_away_s: float
) -> None:
    kept = 0

    def keep(request: httpx.Request) -> httpx.Response:
        nonlocal kept
        if clock.now < away_before_s or kept == times:
            return cut(request)
        kept, clock.now = kept + 1, clock.now + kept_s
        clock.back_s = clock.now + then_away_s if kept == times else float("inf")
        return lost(request)

    clock = play(keep)
    assert await clock.evaluate() == {"status": "ok"}
    assert clock.now <= away_before_s + kept_s * times + then_away_s + 100


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
async def test_a_short_wait_before_an_absence_costs_nothing_of_it(play: Play, lost: Answer) -> None:
    def away(request: httpx.Request) -> httpx.Response:
        if len(clock.asked) > 1:
            return cut(request)
        clock.now += 55
        return lost(request)

    clock = play(away, back_s=55 + 290)
    assert await clock.evaluate() == {"status": "ok"}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize("kept_s", [0, 5, 30, 60, 74, 76, 100, 3000])
async def test_a_request_that_is_lost_each_time_is_tried_a_few_times_and_not_for_ever(
    play: Play, lost: Answer, kept_s: float
) -> None:
    def kept(request: httpx.Request) -> httpx.Response:
        clock.now += kept_s
        return lost(request)

    clock = play(kept)
    with pytest.raises(InfraError, match=r"\((\d+) failures\)") as error:
        await clock.evaluate()
    assert Patience().tries <= len(clock.asked) <= (Patience().tries if kept_s > 75 else 20)
    assert f"({len(clock.asked)} failures)" in str(error.value)
    assert clock.now >= Patience().broken_s
