"""The examples that templates show are right: each one passes the verifier on a task that asks for it."""

from __future__ import annotations

import re

import pytest

from kb_ray.extract import extract
from kb_ray.prompts.opening import template_names, template_text
from kb_ray.records import Candidate, Completion, Status, Task, TensorSpec
from tests.fixtures_bench import Verify

SHAPES = {"x": (37, 70), "y": (37, 70), "a": (37, 70), "b": (70, 45)}
BIAS_RELU = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return torch.relu(x + self.bias)


def get_inputs():
    return [torch.randn(37, 70)]


def get_init_inputs():
    return [70]
"""


def function(parameters: str, formula: str) -> Task:
    names = parameters.split(", ")
    return Task(
        task_id=f"folder/{formula}",
        source="folder",
        name=formula,
        reference_code=f"import torch\n\n\ndef reference_impl({parameters}):\n    return {formula}\n",
        style="function",
        entry_point="reference_impl",
        input_shapes={name: TensorSpec(shape=SHAPES[name]) for name in names},
    )


ASKED_BY = {
    "double_add_kernel": function("x, y", "2.0 * x + y"),
    "row_norm_kernel": function("x", "torch.sqrt((x * x).sum(dim=1))"),
    "product_kernel": function("a, b", "a @ b"),
    "double_kernel": function("x", "2.0 * x"),
    "bias_relu_kernel": Task(
        task_id="folder/bias_relu",
        source="folder",
        name="bias_relu",
        reference_code=BIAS_RELU,
        style="module",
        entry_point="Model",
    ),
}
"""The task that each example kernel answers."""


def examples(template: str) -> dict[str, str]:
    """Kernel's name -> code of each example of a template, as found in an answer that consists of it."""
    text = template_text(template)
    marked = re.findall(r"^```python\n.*?^```$|^<triton>\nimport.*?^</triton>$", text, re.MULTILINE | re.DOTALL)
    found = [extract(Completion(text=one, finish_reason="stop", model="m")) for one in marked]
    assert all(isinstance(one, Candidate) for one in found)
    codes = [one.code for one in found if isinstance(one, Candidate)]
    return {re.findall(r"^def (\w+_kernel)\(", code, re.MULTILINE)[0]: code for code in codes}


SHOWN = {(template, kernel): code for template in template_names() for kernel, code in examples(template).items()}


@pytest.mark.parametrize(("template", "kernel"), SHOWN, ids=["-".join(key) for key in SHOWN])
def test_every_example_passes_the_verifier(template: str, kernel: str, verify: Verify) -> None:
    verdict = verify(SHOWN[template, kernel], ASKED_BY[kernel], n_correctness=5)
    assert verdict.status is Status.OK, verdict.error
    assert verdict.evidence.kernels == (kernel,)
    assert verdict.evidence.torch_ops == {}


def test_default_shows_an_elementwise_kernel_a_reduction_and_a_matrix_product_and_every_template_shows_one() -> None:
    assert set(examples("default")) == {"double_add_kernel", "row_norm_kernel", "product_kernel"}
    assert {template for template, _ in SHOWN} == set(template_names())
