"""Filters: what each removes, and that it is said under the flag's own name."""

from __future__ import annotations

from kb_ray.exporting.options import Filters
from kb_ray.exporting.sieve import Sieve, sound, trusted_speedup
from tests.unit.exporting.stories import story, task, verdict


def passes(filters: Filters, word: str, *, flags: tuple[str, ...] = ()) -> bool:
    return Sieve(filters).answer(task(flags=flags), verdict(word))


def test_each_filter_lets_through_what_it_names() -> None:
    words = ("fast", "slow", "cpu", "odd", "wrong", "hack", "blank")

    def through(**filters: object) -> list[str]:
        return [word for word in words if passes(Filters(**filters), word)]  # type: ignore[arg-type]

    assert through() == list(words)
    assert through(status=frozenset({"mismatch", "hack"})) == ["wrong", "hack"]
    assert through(trusted=True) == ["fast", "slow", "wrong", "hack", "blank"]
    assert through(min_speedup=1.0) == ["fast"]
    assert through(max_speedup=1.0) == ["slow"]
    assert through(with_flag=frozenset({"above_ceiling"})) == ["odd"]
    assert through(without_flag=frozenset({"above_ceiling"})) == [word for word in words if word != "odd"]


def test_a_speedup_that_is_not_trusted_is_none() -> None:
    assert trusted_speedup(verdict("fast")) == 3.0
    assert trusted_speedup(verdict("odd")) is None
    assert trusted_speedup(verdict("cpu")) is None


def test_a_task_that_a_trivial_kernel_passes_is_excluded_and_sound_nowhere() -> None:
    flagged = task(flags=("zeros_pass",))
    assert not passes(Filters(exclude_flagged=True), "fast", flags=("zeros_pass",))
    assert passes(Filters(exclude_flagged=True), "fast")
    assert sound(task(), verdict("cpu"))
    assert not sound(flagged, verdict("cpu"))
    assert not sound(task(), verdict("odd"))
    assert not sound(task(), verdict("wrong"))


def test_source_and_level_are_asked_of_episodes_and_the_account_names_each_flag() -> None:
    sieve = Sieve(Filters(source=frozenset({"builtin", "folder"}), level=frozenset({1}), min_speedup=2.0))
    assert sieve.episode(story("fast"))
    assert not sieve.episode(story("fast", of=task(source="kernelbook")))
    assert not sieve.episode(story("fast", of=task(level=2)))
    assert not sieve.episode(story("fast", of=task(level=None)))
    assert sieve.answer(task(), verdict("fast"))
    assert not sieve.answer(task(), verdict("slow"))
    sieve.count("episodes without an answer")
    assert sieve.episodes == 4
    assert sieve.account() == (
        "--source builtin,folder removed 1 episode, --level 1 removed 2 episodes, --min-speedup 2 removed 1 answer, "
        "1 episodes without an answer"
    )


def test_a_filter_that_removed_nothing_is_not_named() -> None:
    assert Sieve(Filters(trusted=True)).account() == "no filter removed anything"


def test_near_duplicates_are_looked_for_among_right_and_wrong_answers_apart() -> None:
    sieve, of = Sieve(Filters(), 0.9), task()
    kernel = "\n".join(f"    y{i} = tl.load(x + {i}) * {i}" for i in range(40))
    assert sieve.novel(of, kernel, correct=True)
    assert sieve.novel(of, kernel, correct=False)
    assert not sieve.novel(of, kernel, correct=True)
    assert sieve.novel(of, None, correct=False)
    assert sieve.account() == "--near-duplicates 0.9 removed 1 answer"
