"""Properties of an early end: work that is interrupted is over before anything else is ended."""

from __future__ import annotations

import asyncio

import pytest

from kb_ray import running
from kb_ray.bench import worker
from kb_ray.stopping import unless


async def test_work_that_ends_first_counts() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    assert await unless(asyncio.Event(), work())


async def test_a_failure_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no worker")

    with pytest.raises(ValueError, match="no worker"):
        await unless(asyncio.Event(), work())


@pytest.mark.parametrize("by", ["signal", "cancellation"])
async def test_work_has_let_go_when_it_was_interrupted(by: str) -> None:
    began, let_go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            let_go.set()

    stopped = asyncio.Event()
    waiting = asyncio.create_task(unless(stopped, work()))
    await began.wait()
    if by == "signal":
        stopped.set()
        assert await waiting is False
    else:
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert let_go.is_set()


def test_the_process_outlasts_the_end_of_its_workers() -> None:
    assert running._LET_GO_S > worker._END_S + worker._STOP_S
    assert running._LET_GO_S < 60, "Ray's own minute"
