"""Every part of the family of learning tasks: reference and kernel agree, tuned or not, by the real verifier."""

from __future__ import annotations

import pytest

from benchmarks.learning.family import BINARY, UNARY, Core, Spec, kernel, reference
from kb_ray.records import Status, Task
from kb_ray.tasks.program import read_program
from tests.fixtures_bench import Verify

NAMES = list(UNARY)
ROW_CORES: tuple[Core, ...] = ("sum", "max", "mean", "softmax", "layernorm")
SPECS = [
    *[Spec("map", (8, 20), (name,), (NAMES[i - 1],)) for i, name in enumerate(NAMES)],
    *[Spec("map", (8, 20), ("relu",), (), second, join) for second in ("same", "row", "column") for join in BINARY],
    *[Spec(core, (6, 20), ("plus",), ("silu",)) for core in ROW_CORES],
    *[Spec("softmax", (6, 20), (), (), second, "add") for second in ("same", "row", "column")],
    *[Spec("matmul", shape, before, ("tanh",)) for shape, before in (((32, 40), ()), ((20, 32), ("plus", "decay")))],
]


def task_of(spec: Spec) -> Task:
    code = reference(spec)
    program = read_program(code)
    return Task(
        task_id=f"learning/{spec.name}", source="learning", level=None, name=spec.name, reference_code=code,
        style=program.style, entry_point=program.entry_point, init_convention=program.init_convention,
    )  # fmt: skip


@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_kernel_does_what_the_program_says(verify: Verify, spec: Spec, tuned: bool) -> None:
    verdict = verify(kernel(spec, tuned), task_of(spec), n_correctness=3)
    assert verdict.status is Status.OK, verdict.error
