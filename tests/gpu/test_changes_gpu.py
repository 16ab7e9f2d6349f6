"""Changes of inputs between calls on a GPU: every dtype and layout, and what a task may promise."""

from __future__ import annotations

import pytest

from tests.unit.bench.test_changes import LAYOUTS, PROMISED, check_layout, check_promise


@pytest.mark.parametrize("name", PROMISED)
def test_what_a_task_may_promise_of_its_inputs_holds(name: str) -> None:
    check_promise(name, "cuda")


@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_in_any_order_and_of_any_kind_is_changed_a_little(name: str) -> None:
    check_layout(name, "cuda")
