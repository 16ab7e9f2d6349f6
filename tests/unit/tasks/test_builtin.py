"""The built-in tasks are many, varied, small, and their references really compute something."""

from __future__ import annotations

from typing import Any

import pytest

from kb_ray.records import Task
from kb_ray.tasks import Sources, plan

torch = pytest.importorskip("torch", reason="references are PyTorch programs")

TASKS = [task for task, _ in plan(Sources(specs=("builtin",)), lambda line: pytest.fail(line))]
MAX_ELEMENTS = 65_536
LARGE = {"builtin/1/add_relu"}
"""Large on purpose: on a GPU it must be bound by memory, not by launches."""


def run(task: Task, seed: int) -> tuple[list[Any], list[Any], list[Any]]:
    """(inputs as they were, inputs afterwards, outputs) of the reference, flattened to tensors."""
    torch.manual_seed(seed)
    namespace: dict[str, Any] = {}
    exec(compile(task.reference_code, task.task_id, "exec"), namespace)
    if task.input_shapes:
        inputs = [sample(spec.shape, getattr(torch, spec.dtype)) for spec in task.input_shapes.values()]
    else:
        inputs = namespace["get_inputs"]()
    before = [x.clone() for x in inputs]
    entry = namespace[task.entry_point]
    call = entry(*namespace["get_init_inputs"]()) if task.style == "module" else entry
    with torch.no_grad():
        return before, inputs, tensors(call(*inputs))


def sample(shape: tuple[int, ...], dtype: Any) -> Any:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(-1000, 1000, shape, dtype=dtype)


def tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in (value.values() if isinstance(value, dict) else value) for t in tensors(item)]


def test_there_are_enough_of_them_on_three_levels_in_both_styles() -> None:
    assert len(TASKS) >= 24
    assert {task.level for task in TASKS} == {1, 2, 3}
    assert {task.style for task in TASKS} == {"module", "function"}
    assert all(task.task_id == f"builtin/{task.level}/{task.name}" for task in TASKS)


def test_a_level_can_be_chosen() -> None:
    chosen = plan(Sources(specs=("builtin:2,3",)), lambda line: pytest.fail(line))
    assert [task for task, _ in chosen] == [task for task in TASKS if task.level in (2, 3)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_reference_computes_finite_outputs_that_depend_on_its_inputs(task: Task) -> None:
    before, _, outputs = run(task, seed=1)
    _, _, others = run(task, seed=2)
    for output, other in zip(outputs, others, strict=True):
        values = output.double()
        assert values.isfinite().all()
        assert values.std() > 1e-4
        assert not torch.equal(output, other)
    elements = sum(t.numel() for t in before + outputs)
    assert elements <= MAX_ELEMENTS or task.task_id in LARGE


def test_they_cover_what_a_verifier_must_handle() -> None:
    results = {task.name: run(task, seed=3) for task in TASKS}
    outputs = {name: out for name, (_, _, out) in results.items()}
    dtypes = {t.dtype for before, _, out in results.values() for t in before + out}
    assert {torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int64, torch.bool} <= dtypes
    assert sum(len(out) > 1 for out in outputs.values()) >= 3
    changed = {
        name
        for name, (before, after, _) in results.items()
        if not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    }
    assert changed == {"swish_inplace", "momentum_update"}
    code = "".join(task.reference_code for task in TASKS)
    assert "nn.Parameter" in code
    assert "register_buffer" in code
