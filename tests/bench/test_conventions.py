"""Constructors, weights and wrappers: what candidates of either style get, for tasks of either style."""

from __future__ import annotations

import pytest

from kb_ray.records import Status, Task
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, changed

MODULE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale
        self.register_buffer("shift", torch.rand(features))

    def forward(self, x):
        return self.linear(x) * self.scale + self.shift

def get_inputs():
    return [torch.rand(16, 32)]

def get_init_inputs():
    return INIT
"""

PARTS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def finish(h_ptr, shift_ptr, out_ptr, scale, n, cols, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    h = tl.load(h_ptr + o, mask=m)
    s = tl.load(shift_ptr + o % cols, mask=m)
    tl.store(out_ptr + o, h * scale + s, mask=m)

def run(x, weight, bias, shift, scale):
    h = torch.nn.functional.linear(x, weight, bias)
    out = torch.empty_like(h)
    finish[(triton.cdiv(h.numel(), 256),)](h, shift, out, scale, h.numel(), h.shape[1], BLOCK=256)
    return out
"""

CANDIDATES = {
    "same names": PARTS + '''
class ModelNew(nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale
        self.register_buffer("shift", torch.rand(features))
    def forward(self, x):
        return run(x, self.linear.weight, self.linear.bias, self.shift, self.scale)
''',
    "other names, in order": PARTS + '''
class ModelNew(nn.Module):
    def __init__(self, features, scale=1.0):
        super().__init__()
        self.w = nn.Parameter(torch.empty(features, features))
        self.b = nn.Parameter(torch.empty(features))
        self.s = nn.Parameter(torch.empty(features))
        self.scale = scale
    def forward(self, x):
        return run(x, self.w, self.b, self.s, self.scale)
''',
    "wrapper, by name": PARTS + '''
def triton_kernel_wrapper(x, shift, linear_bias, linear_weight, scale):
    return run(x, linear_weight, linear_bias, shift, scale)
''',
    "wrapper, by position": PARTS + '''
def triton_kernel_wrapper(x, a, b, c, scale=2.5):
    return run(x, b, c, a, scale) if a.dim() == 1 and b.dim() == 2 else run(x, a, b, c, scale)
''',
}  # fmt: skip


@pytest.mark.parametrize("name", CANDIDATES)
@pytest.mark.parametrize(
    ("convention", "init"),
    [("args", "[32, 2.5]"), ("args_kwargs", "[[32], {'scale': 2.5}]")],
)
def test_weights_and_arguments_reach_every_kind_of_candidate(
    verify: Verify, name: str, convention: str, init: str
) -> None:
    task = Task(
        task_id="folder/affine", source="folder", name="affine", style="module", entry_point="Model",
        reference_code=changed("INIT", init, MODULE), init_convention=convention,  # type: ignore[arg-type]
    )  # fmt: skip
    verdict = verify(CANDIDATES[name], task)
    assert verdict.status is Status.OK, verdict.error


def test_a_dropped_weight_is_a_mismatch(verify: Verify) -> None:
    task = Task(
        task_id="folder/affine", source="folder", name="affine", style="module", entry_point="Model",
        reference_code=changed("INIT", "[32, 2.5]", MODULE),
    )  # fmt: skip
    code = changed("self.linear.bias, self.shift", "None, self.shift", CANDIDATES["same names"])
    assert verify(code, task).status is Status.MISMATCH


def test_a_class_serves_a_function_task(verify: Verify) -> None:
    code = KERNEL + (
        "\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return triton_kernel_wrapper(x, y)\n"
    )
    assert verify(changed("def triton_kernel_wrapper", "def wrapped", code).replace(
        "return triton_kernel_wrapper(", "return wrapped("
    )).status is Status.OK  # fmt: skip


def test_a_reference_that_works_in_place_accepts_both_ways(verify: Verify) -> None:
    task = ADD_RELU.model_copy(
        update={"reference_code": "import torch\ndef reference_impl(x, y):\n    return x.add_(y).relu_()\n"}
    )
    assert verify(KERNEL, task).status is Status.OK
    assert verify(changed("return out", "x.copy_(out)\n    return x", KERNEL), task).status is Status.OK
    assert verify(changed("return out", "x.zero_()\n    return out", KERNEL), task).status is Status.MUTATED_INPUT


def test_half_precision_is_held_to_its_own_tolerance(verify: Verify) -> None:
    # Widened, since the interpreter computes bfloat16 wrongly by itself.
    code = changed("tl.maximum(x + y, 0.0)", "tl.maximum(x.to(tl.float32) + y.to(tl.float32), 0.0)")
    for dtype in ("float16", "bfloat16"):
        shapes = {k: s.model_copy(update={"dtype": dtype}) for k, s in (ADD_RELU.input_shapes or {}).items()}
        verdict = verify(code, ADD_RELU.model_copy(update={"input_shapes": shapes}))
        assert verdict.status is Status.OK, (dtype, verdict.error)


STRIDED = {
    "channels_last": ("torch.randn(2, 3, 8, 9).to(memory_format=torch.channels_last)", Status.MISMATCH),
    "transposed": ("torch.randn(30, 40).t()", Status.MISMATCH),
    "expanded": ("torch.randn(1, 2000).expand(3, 2000)", Status.ILLEGAL_ACCESS),
}


@pytest.mark.parametrize("name", STRIDED)
def test_inputs_arrive_in_the_layout_they_were_drawn_in_B12(verify: Verify, name: str) -> None:
    drawn, wrong = STRIDED[name]
    task = Task(
        task_id=f"folder/{name}", source="folder", name=name, style="module", entry_point="Model",
        reference_code=(
            "import torch\nclass Model(torch.nn.Module):\n"
            "    def forward(self, x, y):\n        return torch.relu(x + y)\n"
            f"def get_inputs():\n    x = {drawn}\n    return [x, torch.randn(x.shape)]\n"
        ),
    )  # fmt: skip
    code = changed("out = torch.empty_like(x)", "out = torch.empty(x.shape)")
    careful = changed("](x, y, out", "](x.contiguous(), y, out", code)
    assert verify(careful, task).status is Status.OK
    assert verify(code, task).status is wrong
    writes = changed("    return out", "    x.narrow(0, 0, 1).fill_(7.0)\n    return out", careful)
    assert verify(writes, task).status is Status.MUTATED_INPUT


def test_what_the_constructor_made_of_a_weight_is_not_overwritten_B06(verify: Verify) -> None:
    task = Task(
        task_id="folder/affine", source="folder", name="affine", style="module", entry_point="Model",
        reference_code=changed("INIT", "[32, 2.5]", MODULE),
    )  # fmt: skip
    turned = CANDIDATES["other names, in order"]
    turned = changed(
        "self.w = nn.Parameter(torch.empty(features, features))", "l = nn.Linear(features, features)", turned
    )
    turned = changed(
        "self.b = nn.Parameter(torch.empty(features))", "self.w = nn.Parameter(l.weight.detach().t())", turned
    )
    turned = changed("        self.s =", "        self.b = l.bias\n        self.s =", turned)
    turned = changed("run(x, self.w,", "run(x, self.w.t(),", turned)
    assert verify(turned, task).status is Status.OK
    assert verify(changed("self.w.t()", "self.w", turned), task).status is Status.MISMATCH
