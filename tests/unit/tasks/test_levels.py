"""The level of an unlabelled task follows from its program by a fixed rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray.tasks.levels import MANY_TOKENS, level_of

MODULE = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    {docstring}
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x, y=None):
        {forward}

def get_inputs():
    return [torch.rand(8, 8) + torch.rand(8, 8) * torch.rand(8, 8) @ torch.rand(8, 8)]

def get_init_inputs():
    return []
"""


def module(forward: str, made: str = "pass", docstring: str = "pass") -> str:
    return MODULE.format(forward=forward, made=made, docstring=docstring)


ONE_LAYER = "self.fc = nn.Linear(8, 8)"
CONV_BN = "self.conv = nn.Conv2d(3, 8, 3); self.bn = nn.BatchNorm2d(8)"
MANY = "; ".join(f"self.l{i} = nn.Linear(8, 8)" for i in range(6))
EXAMPLES = [
    # One operation, whatever surrounds it.
    ("an activation", 1, module("return torch.relu(x)")),
    ("an operator", 1, module("return x @ y")),
    ("an operator with a constant", 1, module("return x * 2")),
    ("one layer", 1, module("return self.fc(x)", ONE_LAYER)),
    ("a layer and a reshape", 1, module("return self.fc(x.view(8, -1)).reshape(4, 16)", ONE_LAYER)),
    ("a reduction whose value is taken out", 1, module("return torch.min(x, dim=1)[0]")),
    ("shapes are computed with, not values", 1, module("return self.fc(x.view(x.size(0) // 2 + 1, -1))", ONE_LAYER)),
    ("a function", 1, "def reference_impl(x):\n    return x.softmax(-1)\n"),
    # Several.
    ("@ and +", 2, module("return x @ y + y")),
    ("* and +", 2, module("return x * y + y")),
    ("operators with constants", 2, module("return x * 2 + 1")),
    ("a call and an operator", 2, module("return torch.matmul(x, y) + y")),
    ("an operator and a call", 2, module("return torch.relu(x @ y)")),
    ("operators within a function that moves data", 2, module("return torch.reshape(x @ y + y, (4, 16))")),
    ("operators whose outcome is moved", 2, module("return (x @ y + y).view(4, 16)")),
    ("an operator in place", 2, module("\n        x += y\n        return torch.relu(x)")),
    ("+ and @ and *", 2, module("return x @ y + x * y")),
    ("a chain of calls", 2, module("return torch.relu(torch.tanh(x))")),
    ("conv, norm, activation", 2, module("return F.relu(self.bn(self.conv(x)))", CONV_BN)),
    ("product, bias and activation", 2, "def reference_impl(x, w, b):\n    return (x @ w + b).relu()\n"),
    ("said to be fused", 2, module("return torch.relu(x)", docstring='"""A fused kernel."""')),
    ("called a fusion", 2, "def reference_impl(x):\n    '''Bias fusion.'''\n    return x.relu()\n"),
    ("said to be combined", 2, module("return torch.relu(x)", docstring='"""Combined operators."""')),
    ("long", 2, module("return torch.stack([" + "x, " * (MANY_TOKENS + 1) + "])")),
    # Architectures and algorithms.
    ("many layers", 3, module("return self.l0(x)", MANY)),
    ("attention", 3, module("return self.a(x, x, x)", "self.a = nn.MultiheadAttention(8, 2)")),
    ("attention as a function", 3, module("return F.scaled_dot_product_attention(x, x, x)")),
    ("a recurrent network", 3, module("return self.r(x)[0]", "self.r = nn.LSTM(8, 8)")),
    ("a loop around computing code", 3, module("\n        for _ in [1, 2]:\n            x = x @ y\n        return x")),
    ("built of blocks of its own", 3, "class Block(nn.Module):\n    def forward(self, x):\n        return x\n"
     + module("return self.b(x)", "self.b = Block()")),
    ("a gradient by hand", 3, "class Step(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
     "        return x\n    @staticmethod\n    def backward(ctx, g):\n        return g\n"
     + module("return Step.apply(x)")),
    # Not a program.
    ("nothing", 1, ""),
    ("no Python", 1, "def f(:"),
]  # fmt: skip


@pytest.mark.parametrize(("level", "code"), [e[1:] for e in EXAMPLES], ids=[e[0] for e in EXAMPLES])
def test_the_rule_gives_each_example_its_level(level: int, code: str) -> None:
    assert level_of(code, "Model" if "class Model" in code else "reference_impl") == level


def test_only_what_the_entry_point_uses_counts() -> None:
    other = "class Other(nn.Module):\n    def forward(self, x):\n        return x @ x + x * x\n"
    assert level_of(other + module("return torch.relu(x)"), "Model") == 1
    assert level_of(other + module("return torch.relu(x)")) == 2
    helper = "def helper(x):\n    return torch.tanh(x) @ x + x\n"
    assert level_of(helper + module("return helper(x)"), "Model") == 2


def test_a_base_class_counts_with_what_inherits_it() -> None:
    base = "class Base(nn.Module):\n    def forward(self, x):\n        return torch.relu(torch.tanh(x))\n"
    assert level_of(f"{base}class Model(Base):\n    pass\n", "Model") == 2


@given(st.text() | st.text(alphabet="def class(x):\n +@*return[]"))
def test_any_text_has_a_level(text: str) -> None:
    assert level_of(text) in (1, 2, 3)
