"""Processes are replaced after so many verdicts, between two of them, and no verdict is lost by it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.lifetime import Lifetime
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError
from kb_ray.records import Status
from tests.fixtures_bench import ADD_RELU, KERNEL


def test_nothing_is_under_way_while_they_are_replaced_and_none_is_left_out() -> None:
    running, renewals, lock = set[int](), list[int](), threading.Lock()
    lifetime = Lifetime(5, lambda: renewals.append(len(running)))

    def serve(number: int) -> int:
        with lifetime.one():
            with lock:
                running.add(number)
            time.sleep(0.002)
            with lock:
                running.discard(number)
        return number

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(serve, range(42))) == list(range(42))
    assert renewals == [0] * 8


def test_a_replacement_that_fails_ends_one_verdict_and_is_tried_again() -> None:
    tries = iter([InfraError("no GPU"), None])

    def renew() -> None:
        if (failure := next(tries)) is not None:
            raise failure

    lifetime = Lifetime(1, renew)
    with lifetime.one():
        pass
    with pytest.raises(InfraError, match="no GPU"), lifetime.one():
        pytest.fail("served by worn-out processes")
    with lifetime.one():
        pass


def test_verdicts_go_on_over_fresh_processes() -> None:
    evaluator = Evaluator(device="cpu", concurrency=2, name="short-lived", lifetime=3)
    seen = set[int]()

    def judge(number: int) -> Status:
        settings = BenchSettings(n_correctness=1, timeout_s=30.0)
        request = BenchRequest(
            request_id=f"l{number}", task=ADD_RELU, kernel_code=f"# {number}\n{KERNEL}", settings=settings
        )
        status = evaluator.evaluate(request).status
        seen.add(evaluator.pids().get("judge", 0))
        return status

    try:
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(judge, range(7))) == [Status.OK] * 7
        assert len(seen - {0}) == 3
    finally:
        evaluator.stop()
