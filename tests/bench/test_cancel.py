"""Giving up a request: its candidate dies with all that it started, at once, and nobody else notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from kb_ray.bench.host import Evaluator, GivenUp
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Status, Verdict
from tests.fixtures_bench import ADD_RELU, KERNEL, first

ENDLESS = {
    "import": "import time\ntime.sleep(600)\n" + KERNEL,
    "call": first("import time; time.sleep(600)"),
    "busy": first("while True: x = x + 0"),
    # Past the static rules, which know `os.fork` in every ordinary spelling.
    "children": first("import os, time; next(v for k, v in vars(os).items() if k[::-1] == 'krof')(); time.sleep(600)"),
}


def request(name: str, code: str) -> BenchRequest:
    settings = BenchSettings(n_correctness=2, timeout_s=300)
    return BenchRequest(request_id=name, task=ADD_RELU, kernel_code=code, settings=settings)


def groups(evaluator: Evaluator) -> list[Path]:
    assert evaluator.run_dir is not None
    return list((evaluator.run_dir / "candidates" / "groups").iterdir())


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.fixture
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def started(evaluator: Evaluator, threads: ThreadPoolExecutor, name: str, code: str) -> Future[Verdict]:
    """The request under way, and its candidate's process there."""
    before = len(groups(evaluator))
    running = threads.submit(evaluator.evaluate, request(name, code))
    assert wait_for(lambda: len(groups(evaluator)) > before)
    return running


@pytest.mark.parametrize("where", ENDLESS)
def test_a_request_that_is_given_up_ends_at_once_and_leaves_no_process(
    evaluator: Evaluator, threads: ThreadPoolExecutor, where: str
) -> None:
    running = started(evaluator, threads, f"endless-{where}", ENDLESS[where])
    time.sleep(0.5)
    judge, began = evaluator.pids()["judge"], time.monotonic()
    assert evaluator.cancel(f"endless-{where}")
    with pytest.raises(GivenUp):
        running.result(10)
    assert time.monotonic() - began < 5
    assert groups(evaluator) == []
    assert evaluator.pids()["judge"] == judge
    assert evaluator.evaluate(request("after", KERNEL)).status is Status.OK


def test_a_neighbour_of_one_that_is_given_up_gets_its_verdict(
    evaluator: Evaluator, threads: ThreadPoolExecutor
) -> None:
    running = started(evaluator, threads, "given-up", ENDLESS["call"])
    neighbours = threads.map(lambda number: evaluator.evaluate(request(f"neighbour-{number}", KERNEL)), range(4))
    threading.Timer(0.3, evaluator.cancel, ["given-up"]).start()
    assert [verdict.status for verdict in neighbours] == [Status.OK] * 4
    with pytest.raises(GivenUp):
        running.result(10)


def test_one_that_waits_for_a_place_is_given_up_without_ever_starting(
    evaluator: Evaluator, threads: ThreadPoolExecutor
) -> None:
    running = [started(evaluator, threads, f"holds-{i}", ENDLESS["call"]) for i in range(evaluator.concurrency)]
    waiting = threads.submit(evaluator.evaluate, request("waits", ENDLESS["call"]))
    assert wait_for(lambda: evaluator.cancel("waits"))
    for i in range(evaluator.concurrency):
        assert evaluator.cancel(f"holds-{i}")
    for given_up in (*running, waiting):
        with pytest.raises(GivenUp):
            given_up.result(10)
    assert groups(evaluator) == []


def test_who_has_a_verdict_or_never_asked_cannot_be_given_up(evaluator: Evaluator) -> None:
    assert evaluator.evaluate(request("done", KERNEL)).status is Status.OK
    assert not evaluator.cancel("done")
    assert not evaluator.cancel("never asked")
