"""Properties of the driver: overlap, bounds, order, exactly once, what a turn records. Real script, sink and
store; the pool is a stand-in, since here it matters when verdicts come and not how they are reached."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from kb_ray import drive as driver
from kb_ray.bench.protocol import BenchRequest
from kb_ray.model.completer import Request
from kb_ray.places import Places
from kb_ray.records import Completion, Episode, StopReason
from tests.unit.drive_stand_ins import BAD, GOOD, Bench, StandInPool, WatchedModel, assert_exactly_once, script, task


async def test_every_episode_is_kept_once_and_a_second_start_has_nothing_to_do(tmp_path: Path) -> None:
    model = WatchedModel(script(tmp_path, BAD, GOOD))
    first = Bench(tmp_path, model, StandInPool(), multi_turn=True)
    assert (await first.run(9)).kind == "done"
    assert_exactly_once(first.rows(), 9)
    assert {row.stop_reason for row in first.rows()} == {StopReason.SUCCESS_UNTIMED}
    assert [turn.verdict.correct for turn in first.rows()[0].turns] == [False, True]
    asked = len(model.requests)
    second = Bench(tmp_path, model, StandInPool(), multi_turn=True)
    await second.run(9)
    assert len(model.requests) == asked
    assert_exactly_once(second.rows(), 9)


async def test_generation_stays_within_the_batch_size_and_fills_it(tmp_path: Path) -> None:
    model = WatchedModel(script(tmp_path, BAD), delay_s=0.005)
    await Bench(tmp_path, model, StandInPool(), batch_size=3, multi_turn=True).run(20)
    assert model.most == 3


async def test_generation_goes_on_while_every_verdict_hangs(tmp_path: Path) -> None:
    release = asyncio.Event()
    model = WatchedModel(script(tmp_path, GOOD))
    pool = StandInPool(places=2, before=lambda request: release.wait())
    bench = Bench(tmp_path, model, pool, batch_size=3)
    running = asyncio.create_task(bench.run(30))
    in_flight = 3 + 2 + driver._SLACK
    async with asyncio.timeout(5):
        while bench.tally.waiting_on_bench < in_flight:
            await asyncio.sleep(0.01)
    # More were answered than the model's batch holds, though not one verdict has come.
    await asyncio.sleep(0.1)
    assert len(model.requests) == in_flight, "episodes in flight are bounded"
    release.set()
    await running
    assert_exactly_once(bench.rows(), 30)


async def test_verdicts_go_on_while_the_model_hangs(tmp_path: Path) -> None:
    model = WatchedModel(script(tmp_path, GOOD))
    slow = asyncio.Event()
    original = model.complete

    async def complete(request: Request) -> Completion:
        if request.task_id == task(0).task_id:
            await slow.wait()
        return await original(request)

    model.complete = complete  # type: ignore[method-assign]
    bench = Bench(tmp_path, model, StandInPool(), batch_size=2)
    running = asyncio.create_task(bench.run(10))
    while bench.tally.finished < 9:
        await asyncio.sleep(0.01)
    slow.set()
    await running
    assert_exactly_once(bench.rows(), 10)


async def test_turns_of_running_episodes_go_before_new_ones() -> None:
    places, order = Places(1), []

    async def taker(name: str, priority: int) -> None:
        async with places.take(priority):
            order.append(name)

    async with places.take(0):
        waiting = [asyncio.create_task(taker(*item)) for item in (("new", 1), ("running", 0), ("new too", 1))]
        await asyncio.sleep(0)
        waiting[2].cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["running", "new"]
    async with asyncio.timeout(1), places.take(0):
        pass


async def test_a_place_granted_to_a_cancelled_waiter_is_passed_on() -> None:
    places = Places(1)
    holder = places.take(0)
    await holder.__aenter__()
    waiter = asyncio.create_task(places.take(0).__aenter__())
    await asyncio.sleep(0)
    await holder.__aexit__(None, None, None)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    async with asyncio.timeout(1), places.take(0):
        pass


async def test_finished_episodes_are_not_held_in_memory(tmp_path: Path) -> None:
    class Forgetful:
        def add(self, episode: Episode) -> None:
            pass

        def close(self, timeout: float) -> None:
            pass

    bench = Bench(tmp_path, WatchedModel(script(tmp_path, BAD)), StandInPool(), sink=Forgetful())
    await bench.run(30)
    gc.collect()
    mine = [item for item in gc.get_objects() if isinstance(item, Episode) and item.run_id == "run"]
    assert mine == []


async def test_times_of_a_turn_say_what_was_waited_for(tmp_path: Path) -> None:
    async def slow(request: BenchRequest) -> None:
        await asyncio.sleep(0.05)

    bench = Bench(
        tmp_path,
        WatchedModel(script(tmp_path, GOOD), delay_s=0.05),
        StandInPool(places=1, before=slow),
        batch_size=1,
    )
    await bench.run(2)
    times = [row.turns[0].times for row in bench.rows()]
    assert all(time.model_s >= 0.05 and time.bench_s >= 0.05 for time in times)
    assert max(time.model_queue_s for time in times) >= 0.04
