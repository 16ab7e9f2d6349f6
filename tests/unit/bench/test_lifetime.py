"""Processes are replaced after so many verdicts, between two of them, and no verdict is lost by it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb_ray.bench import host
from kb_ray.bench.child.frames import Channel
from kb_ray.bench.host import Evaluator
from kb_ray.bench.lifetime import Lifetime
from kb_ray.errors import InfraError


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


@pytest.mark.parametrize("again", [False, True])
def test_a_stop_that_comes_first_leaves_nothing_to_renew(again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(device="cpu", name="stopped")
    done = list[str]()
    monkeypatch.setattr(evaluator, "_launch", lambda: done.append("launch"))
    monkeypatch.setattr(evaluator, "_shut", lambda: done.append("shut"))
    enqueue = evaluator._on_keeper

    def late(job: Callable[[], None]) -> None:
        evaluator.stop()
        if again:
            monkeypatch.setattr(evaluator, "_on_keeper", enqueue)
            evaluator.start()
        enqueue(job)

    evaluator.start()
    monkeypatch.setattr(evaluator, "_on_keeper", late)
    renewal = threading.Thread(target=evaluator._lifetime._renew, daemon=True)
    renewal.start()
    renewal.join(20)
    assert not renewal.is_alive()
    assert done == (["launch", "shut", "launch", "shut"] if again else ["launch", "shut"])
    evaluator.stop()


def test_a_folder_that_cannot_be_given_up_holds_up_neither_the_channel_nor_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Evaluator(device="cpu", name="stopped")
    ours, theirs = socket.socketpair()
    evaluator._channel, evaluator.run_dir = Channel(ours), tmp_path

    def fails(folder: Path) -> None:
        raise PermissionError(folder)

    monkeypatch.setattr(host, "release", fails)
    with theirs, pytest.raises(PermissionError):
        evaluator._shut()
    assert (evaluator.run_dir, ours.fileno()) == (None, -1)
    evaluator._clear()
