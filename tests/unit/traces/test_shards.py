"""Shards: disjoint, together everything, the same whatever else is planned; plans that are kept once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray.config import RunConfig
from kb_ray.traces.plans import read_plans, write_plan
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import open_store


@given(st.lists(st.tuples(st.text(max_size=12), st.integers(0, 10_000)), max_size=30), st.integers(1, 64))
def test_every_episode_is_in_exactly_one_shard(pairs: list[tuple[str, int]], count: int) -> None:
    shards = [Shard(index=index, count=count) for index in range(1, count + 1)]
    for pair in pairs:
        assert sum(shard.holds(*pair) for shard in shards) == 1


def test_shards_are_alike_in_size() -> None:
    pairs = [(f"kernelbook/{i}", sample) for i in range(5000) for sample in range(2)]
    sizes = [sum(Shard(index=index, count=8).holds(*pair) for pair in pairs) for index in range(1, 9)]
    assert max(sizes) < 1.1 * min(sizes)


def test_what_a_shard_takes_is_the_same_today_and_tomorrow() -> None:
    held = [i for i in range(20) if Shard.of("2/4").holds(f"builtin/1/t{i}", 0)]
    assert held == [2, 4, 6, 7, 10]


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "1/0", "a/b", "1/2/3", "-1/2", "1/5000", ""])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="I/N"):
        Shard.of(text)
    with pytest.raises(ValueError, match="I/N"):
        RunConfig(shard=text)


def test_which_shard_meets_which() -> None:
    assert Shard.of("1/2").meets(Shard.of("1/2"))
    assert not Shard.of("1/2").meets(Shard.of("2/2"))
    assert Shard.of("1/2").meets(Shard.of("2/4"))
    assert Shard().meets(Shard.of("7/9"))


def test_a_plan_is_kept_once_and_comes_back(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    pairs = [("b", 0), ("a", 1), ("a", 0)]
    key = write_plan(store, pairs)
    assert write_plan(store, reversed(pairs)) == key
    other = write_plan(store, [*pairs, ("c", 0)])
    store.put_if_absent("plans/plan-bad.json", b"{")
    plans, damaged = read_plans(store)
    assert plans == {key: frozenset(pairs), other: frozenset([*pairs, ("c", 0)])}
    assert damaged == ["plans/plan-bad.json"]
