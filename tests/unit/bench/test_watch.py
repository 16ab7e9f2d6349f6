"""Verdicts of a node that nobody has looked at yet wait for the first look. Workers and Ray's accounts are played."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kb_ray.bench import watch
from kb_ray.bench.neighbours import FLAG, IDLE_BYTES, GpuUse
from kb_ray.bench.worker import Worker
from kb_ray.records import Stage, Status, Verdict

TIMED = Verdict.of(Status.OK, Stage.TIMING, speedup=2.0, trusted=True, verifier_version="1")
SHARED = GpuUse(node="n", host="h", own="a", used={"b": 40 * IDLE_BYTES})


class Played:
    """A worker that says `use` of its node, and counts how often it is asked."""

    def __init__(self, use: GpuUse | None) -> None:
        self.use, self.asked = use, 0

    async def gpu_use(self) -> GpuUse | None:
        self.asked += 1
        await asyncio.sleep(0)
        return self.use


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "held_gpus", dict)


def watching(*workers: Played) -> tuple[watch.Watch, list[str]]:
    told: list[str] = []
    return watch.Watch(lambda: cast(list[Worker], list(workers)), told.append), told


def flags(verdicts: list[Verdict]) -> list[Any]:
    return [FLAG in verdict.evidence.flags for verdict in verdicts]


async def test_the_first_verdicts_of_a_node_are_marked_too_and_one_look_is_enough_for_them() -> None:
    worker, coming = Played(SHARED), Played(None)
    looks, told = watching(worker, coming)
    first = await asyncio.gather(*(looks.marked(TIMED, "n", 0.0) for _ in range(5)))
    assert flags(first) == [True] * 5
    assert (worker.asked, len(told)) == (1, 1)
    assert flags([await looks.marked(TIMED, "n", 0.0)]) == [True]
    assert worker.asked == 1


async def test_what_was_not_timed_or_came_from_nobody_knows_where_waits_for_nothing() -> None:
    worker = Played(SHARED)
    looks, _ = watching(worker)
    wrong = Verdict.of(Status.MISMATCH, Stage.FULL, verifier_version="1")
    assert flags([await looks.marked(wrong, "n", 0.0), await looks.marked(TIMED, None, 0.0)]) == [False, False]
    assert worker.asked == 0
