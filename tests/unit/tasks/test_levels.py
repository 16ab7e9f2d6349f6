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
LAYERS = "nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()"
CHAIN = f"self.net = nn.Sequential({LAYERS})"
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
    # What a module holds counts as if its calls were written out.
    ("one layer in a chain", 1, module("return self.net(x)", "self.net = nn.Sequential(nn.Linear(8, 8))")),
    ("a chain of a layer and a reshape", 1,
     module("return self.net(x)", "self.net = nn.Sequential(nn.Flatten(), nn.Linear(8, 8))")),
    ("a layer by name", 1, module("return self.fc(x)", "self.add_module('fc', nn.Linear(8, 8))")),
    ("one layer in a list", 1, module("return self.net[0](x)", "self.net = nn.ModuleList([nn.Linear(8, 8)])")),
    ("conv, norm, activation in a chain", 2, module("return self.net(x)", CHAIN)),
    ("a chain in a chain", 2, module("return self.net(x)", f"self.net = nn.Sequential(nn.Sequential({LAYERS}))")),
    ("a chain with names", 2, module("return self.net(x)",
     "self.net = nn.Sequential(OrderedDict([('a', nn.Linear(8, 8)), ('b', nn.ReLU())]))")),
    ("a chain of a list", 2, module("return self.net(x)", f"layers = [{LAYERS}]; self.net = nn.Sequential(*layers)")),
    ("a chain of a list that grows", 2, module("return self.net(x)",
     "l = []; l.append(nn.Linear(8, 8)); l.append(nn.ReLU()); self.net = nn.Sequential(*l)")),
    ("a chain that grows", 2, module("return self.net(x)", "self.net = nn.Sequential(); "
     "self.net.add_module('a', nn.Linear(8, 8)); self.net.add_module('b', nn.ReLU())")),
    ("a chain by inheritance", 2, "class Model(nn.Sequential):\n    def __init__(self):\n"
     "        super().__init__(nn.Linear(8, 8), nn.ReLU())\n"),
    ("a list of layers, run one by one", 2, module(
     "\n        for layer in self.net:\n            x = layer(x)\n        return x",
     f"self.net = nn.ModuleList([{LAYERS}])")),
    ("a list of layers, called by index", 2,
     module("return self.net[1](self.net[0](x))", "self.net = nn.ModuleList([nn.Linear(8, 8), nn.ReLU()])")),
    ("two chains of one layer", 2, module("return self.b(self.a(x))",
     "self.a = nn.Sequential(nn.Linear(8, 8)); self.b = nn.Sequential(nn.ReLU())")),
    ("a chain of many layers", 3, module("return self.net(x)", f"self.net = nn.Sequential({LAYERS}, {LAYERS})")),
    ("a chain as long as it is told", 3, module("return self.net(x)", "ls = []"
     "\n        for n in [8, 8]:\n            ls.append(nn.Linear(n, n))\n        self.net = nn.Sequential(*ls)")),
    ("a chain made by a comprehension", 3, module("return self.net(x)",
     "self.net = nn.Sequential(*[nn.Linear(n, n) for n in [8, 8]])")),
    ("a list of layers as long as it is told", 3, module(
     "\n        for layer in self.net:\n            x = layer(x)\n        return x",
     "self.net = nn.ModuleList(nn.Linear(n, n) for n in [8, 8])")),
    # Networks that others define.
    ("a model of transformers by name", 3, "from transformers import AutoModelForCausalLM, AutoConfig\n"
     + module("return self.m(x)", "self.m = AutoModelForCausalLM.from_pretrained('m', config=y)")),
    ("a model of transformers by its configuration", 3, "import transformers as tf\n"
     + module("return self.m(x)", "self.m = tf.AutoModel.from_config(tf.AutoConfig.from_pretrained('m'))")),
    ("a class of transformers", 3, "from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel\n"
     + module("return self.m(x)", "self.m = GPT2LMHeadModel(y)")),
    ("a model of torchvision", 3, "import torchvision\n"
     + module("return self.m(x)", "self.m = torchvision.models.resnet18()")),
    ("a model of torchvision at module level", 3, "from torchvision import models as tvm\nNET = tvm.vgg16()\n"
     + module("return NET(x)")),
    ("a model of torchvision, inherited", 3, "from torchvision.models import ResNet\n"
     "class Model(ResNet):\n    pass\n"),
    ("a configuration of transformers", 1, "from transformers import AutoConfig\n"
     + module("return torch.relu(x)", "self.c = AutoConfig.from_pretrained('m')")),
    ("an operation of torchvision", 1, "import torchvision\n" + module("return torchvision.ops.nms(x, y, 0.5)")),
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
