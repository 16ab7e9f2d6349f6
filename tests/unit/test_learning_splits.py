"""The lists that learning is judged by: as committed, apart from each other and from what is trained on."""

from __future__ import annotations

import pytest

from benchmarks.learning import splits
from benchmarks.learning.family import kernel, reference
from kb_ray.bench.static import check_static
from kb_ray.tasks.program import read_program


@pytest.fixture(scope="module")
def lists() -> dict[str, list[splits.Spec]]:
    return {"train": splits.train()} | {name: splits.read(name) for name in splits.SPLITS}


def test_held_out_lists_are_those_that_were_committed(lists: dict[str, list[splits.Spec]]) -> None:
    for name in splits.SPLITS:
        assert lists[name] == splits.held_out(name)
        assert len(set(lists[name])) == splits.PER_SPLIT


def test_no_program_is_in_two_lists(lists: dict[str, list[splits.Spec]]) -> None:
    every = [reference(spec) for specs in lists.values() for spec in specs]
    assert len(set(every)) == len(every) == splits.TRAINED + 4 * splits.PER_SPLIT


def test_no_combination_of_operations_is_in_two_lists(lists: dict[str, list[splits.Spec]]) -> None:
    found = {name: {spec.combination for spec in specs} for name, specs in lists.items()}
    assert len(set.union(*found.values())) == sum(len(combinations) for combinations in found.values())
    assert all(len(found[name]) == splits.PER_SPLIT for name in splits.SPLITS)


def test_splits_are_what_they_say(lists: dict[str, list[splits.Spec]]) -> None:
    trained = lists["train"]
    assert max(len(spec.before) for spec in trained) == 3
    assert min(len(spec.before) for spec in lists["longer"]) == 4
    afterwards = {op for spec in trained if spec.core != "map" for op in spec.after}
    assert all(not afterwards & set(spec.after) and spec.after for spec in lists["new_mix"])
    assert all(spec.second != "none" for spec in lists["slow"])
    parts = {part for spec in trained for part in spec.parts}
    assert all(spec.parts <= parts for name in ("seen", "slow") for spec in lists[name])
    assert {splits.shown_tuned(spec) for spec in lists["slow"]} == {False}


def test_every_program_and_kernel_can_be_asked_about(lists: dict[str, list[splits.Spec]]) -> None:
    for specs in lists.values():
        for spec in specs[::10]:
            assert read_program(reference(spec)).entry_point == "Model"
            assert check_static(kernel(spec, tuned=False)) is None
