"""What a reference would take is told without taking it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from kb_ray.bench.child.loading import Program
from kb_ray.bench.child.sizing import estimate

GIB = 1 << 30
LINEAR = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 2 * width, bias=False)
    def forward(self, x, k):
        return self.fc(x), x.sum()
def get_inputs():
    return [torch.rand({rows}, {width}), 3]
def get_init_inputs():
    return [{width}]
"""


def program(code: str, style: str = "module", convention: str = "args", **shapes: Any) -> Program:
    module = ModuleType("reference")
    exec(code, module.__dict__)
    entry = "Model" if style == "module" else "reference_impl"
    request = {"style": style, "init_convention": convention, "input_shapes": shapes}
    return Program(module, entry, request, cuda=False)


def test_inputs_weights_and_outputs_are_counted_in_bytes() -> None:
    found = estimate(program(LINEAR.format(rows=8, width=16)))
    assert found == {"inputs": 8 * 16 * 4, "weights": 32 * 16 * 4, "outputs": (8 * 32 + 1) * 4}


def test_a_giant_is_measured_without_being_made() -> None:
    found = estimate(program(LINEAR.format(rows=1 << 24, width=1 << 14)))
    assert found["inputs"] == 1024 * GIB
    assert found["weights"] == 2 * GIB
    assert found["outputs"] > 2048 * GIB


def test_shapes_and_arguments_by_name_are_honoured() -> None:
    code = "import torch\ndef reference_impl(x, i):\n    return x[i]\n"
    shapes = {"x": [[100, 7], "float16"], "i": [[5], "int64"]}
    assert estimate(program(code, "function", **shapes)) == {"inputs": 1400 + 40, "outputs": 5 * 7 * 2}
    by_name = LINEAR.format(rows=8, width=16).replace("return [16]", "return [[], {'width': 4}]")
    assert estimate(program(by_name, convention="args_kwargs"))["weights"] == 8 * 4 * 4


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"torch.rand(": "torch.rand(int(torch.ones(3).sum()) and "}, set()),
        ({"x.sum()": "x.sum().item()"}, {"inputs", "weights"}),
        ({"super().__init__()": "super().__init__(); self.k = int(torch.ones(2).sum())"}, {"inputs"}),
        ({"def get_inputs": "def get_others"}, set()),
    ],
)
def test_what_depends_on_values_is_left_out_and_the_rest_is_told(change: dict[str, str], known: set[str]) -> None:
    code = LINEAR.format(rows=8, width=16)
    for old, new in change.items():
        code = code.replace(old, new)
    assert set(estimate(program(code))) == known


def test_the_device_is_as_before_afterwards() -> None:
    estimate(program(LINEAR.format(rows=8, width=16)))
    assert torch.ones(1).device.type == nn.Linear(1, 1).weight.device.type == "cpu"
