"""Whether a verdict is still wanted: who is killed when it is not, and who no longer."""

from __future__ import annotations

import pytest

from kb_ray.bench.child.cancelling import Cancellation, Cancelled


class Process:
    """Counts how often it is killed."""

    def __init__(self) -> None:
        self.struck = 0

    def strike(self) -> None:
        self.struck += 1


def test_the_process_that_is_watched_is_killed_and_the_next_step_refused() -> None:
    cancellation, process = Cancellation(), Process()
    cancellation.check()
    cancellation.watch(process)
    cancellation.cancel()
    assert process.struck == 1
    with pytest.raises(Cancelled):
        cancellation.check()


def test_a_process_that_comes_too_late_is_not_used() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        cancellation.watch(Process())


def test_a_process_that_was_let_go_of_is_never_touched_again() -> None:
    cancellation, first, second = Cancellation(), Process(), Process()
    cancellation.watch(first)
    cancellation.release()
    cancellation.watch(second)
    cancellation.release()
    cancellation.cancel()
    assert (first.struck, second.struck) == (0, 0)
