"""A seeded draw takes every task equally often and never changes what it took before."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kb_ray.errors import TaskError
from kb_ray.records import Task
from kb_ray.tasks.draw import draw
from kb_ray.tasks.entry import Entry

KEYS = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=12, unique=True)


def entry(key: str) -> Entry:
    def make() -> Task:
        return Task(
            task_id=key, source="file", name=key, reference_code="", style="function", entry_point="reference_impl"
        )

    return Entry(key, key, make)


def drawn(keys: list[str], count: int, seed: int = 0, bad: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    def read(entry: Entry) -> Task | None:
        return None if entry.key in bad else entry.make()

    return [(task.task_id, sample) for task, sample in draw(map(entry, keys), count, seed, read)]


@given(KEYS, st.integers(0, 40), st.integers(0, 40), st.integers(0, 5))
def test_a_larger_draw_begins_with_the_smaller_one(keys: list[str], count: int, more: int, seed: int) -> None:
    assert drawn(keys, count + more, seed)[:count] == drawn(keys, count, seed)


@given(KEYS, st.integers(0, 60))
def test_sample_indices_spread_evenly_and_no_pair_comes_twice(keys: list[str], count: int) -> None:
    pairs = drawn(keys, count)
    assert len(set(pairs)) == len(pairs) == count
    times = Counter(task for task, _ in pairs)
    assert max(times.values(), default=0) - min((times[key] for key in keys), default=0) <= 1


@given(KEYS)
def test_the_order_of_the_source_does_not_matter(keys: list[str]) -> None:
    assert drawn(sorted(keys), len(keys)) == drawn(sorted(keys, reverse=True), len(keys))


def test_another_seed_draws_another_order() -> None:
    keys = [f"kernelbook/{i}" for i in range(50)]
    assert drawn(keys, 50, seed=1) != drawn(keys, 50, seed=2)


def test_tasks_that_cannot_be_used_are_replaced_by_others() -> None:
    keys = [f"kernelbook/{i}" for i in range(20)]
    bad = frozenset(key for key, _ in drawn(keys, 5))
    assert len(drawn(keys, 5, bad=bad)) == 5
    assert not bad & {key for key, _ in drawn(keys, 40, bad=bad)}


def test_nothing_usable_draws_nothing() -> None:
    assert drawn(["a", "b"], 3, bad=frozenset("ab")) == []


def test_what_is_not_needed_is_not_read() -> None:
    reads: list[str] = []

    def read(entry: Entry) -> Task:
        reads.append(entry.key)
        return entry.make()

    draw([entry(str(i)) for i in range(1000)], 3, 0, read)
    assert len(reads) == 3


def test_an_entry_reads_its_task_only_when_asked() -> None:
    def make() -> Task:
        raise TaskError("is empty")

    assert Entry("a", "a", make).key == "a"
