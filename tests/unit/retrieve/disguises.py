"""One program in many clothes that are all the same task, and further small programs that are not."""

from __future__ import annotations

import re

PLAIN = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super(Model, self).__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor
        self.act = nn.ReLU()

    def forward(self, x):
        x = self.linear(x)
        x = self.act(x)
        x = x * self.scaling_factor
        x = x.sum(dim=1, keepdim=True)
        return x


batch_size = 16


def get_inputs():
    return [torch.randn(batch_size, 512)]


def get_init_inputs():
    return [512, 256, 2.0]
"""
_INIT = PLAIN[PLAIN.index("    def __init__") : PLAIN.index("    def forward")]
_FORWARD = PLAIN[PLAIN.index("    def forward") : PLAIN.index("\n\nbatch_size")]
_LINES = "\n".join(_FORWARD.split("\n")[1:6])
_OTHER = """

class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.tanh(self.bn(self.conv(x)))


def helper(a, b):
    return torch.matmul(a, b).mean(dim=0)
"""
_FUNCTION = """    x = F.linear(x, weight, bias)
    x = F.relu(x)
    x = x * scaling_factor
    return x.sum(dim=1, keepdim=True)
"""

DISGUISES = {
    "renamed": PLAIN.replace("linear", "proj").replace("nn.proj", "nn.linear").replace("scaling_factor", "s"),
    "made in another order": PLAIN.replace(
        "        self.scaling_factor = scaling_factor\n        self.act = nn.ReLU()\n",
        "        self.act = nn.ReLU()\n        self.scaling_factor = scaling_factor\n",
    ),
    "forward before init": PLAIN.replace(_INIT, "").replace(_FORWARD, _FORWARD + "\n" + _INIT),
    "another constant": PLAIN.replace("dim=1", "dim=-1"),
    "bias spelled out": PLAIN.replace("(in_features, out_features)", "(in_features, out_features, bias=True)"),
    "a function for the module": PLAIN.replace("        self.act = nn.ReLU()\n", "").replace("self.act", "torch.relu"),
    "a method for the module": PLAIN.replace("self.act(x)", "x.relu()"),
    "in place": PLAIN.replace("self.act(x)", "x.relu_()"),
    "clamped": PLAIN.replace("self.act(x)", "x.clamp(min=0)"),
    "one line": PLAIN.replace(
        _LINES, "        return (self.act(self.linear(x)) * self.scaling_factor).sum(dim=1, keepdim=True)"
    ),
    "fresh names": PLAIN.replace(
        _LINES,
        "        a = self.linear(x)\n        b = self.act(a)\n        c = b * self.scaling_factor\n"
        "        d = torch.sum(c, 1, True)\n        return d",
    ),
    "functions for operators": PLAIN.replace("x * self.scaling_factor", "torch.mul(x, self.scaling_factor)"),
    "in a bigger file": PLAIN.replace("\n\nbatch_size", _OTHER + "\n\nbatch_size"),
    "one class of a bigger file": re.sub(r"\bModel\b", "First", PLAIN) + _OTHER.replace("Other", "Model"),
    "a further method": PLAIN.replace(
        "        return x\n", "        return x\n\n    def extra_repr(self):\n        return f'{self.scaling_factor}'\n"
    ),
    "checks and prints": PLAIN.replace(
        "        x = self.linear(x)\n",
        "        assert x.dim() == 2\n        print(x.shape)\n        x = self.linear(x)\n",
    ),
    "in a sequence": PLAIN.replace("nn.Linear(in_features, out_features)", "nn.Sequential(nn.Linear(4, 4), nn.ReLU())")
    .replace("        self.act = nn.ReLU()\n", "")
    .replace("        x = self.act(x)\n", ""),
    "in a module of its own": PLAIN.replace(
        "class Model",
        "class Block(nn.Module):\n    def __init__(self, n, m):\n        super().__init__()\n"
        "        self.fc = nn.Linear(n, m)\n"
        "\n    def forward(self, y):\n        return torch.relu(self.fc(y))\n\n\nclass Model",
    )
    .replace("self.linear = nn.Linear", "self.linear = Block")
    .replace("        x = self.act(x)\n", ""),
    "a dropout more": PLAIN.replace("self.act(x)", "nn.functional.dropout(self.act(x), 0.1, self.training)"),
    "a function": "import torch\nimport torch.nn.functional as F\n\n\n"
    "def reference_impl(x, weight, bias, scaling_factor):\n" + _FUNCTION,
    "module and function": "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
    "def module_fn(x, weight, bias, scaling_factor):\n" + _FUNCTION + "\n\n"
    "class Model(nn.Module):\n    def __init__(self, in_features, out_features, scaling_factor):\n"
    "        super(Model, self).__init__()\n        lin = nn.Linear(in_features, out_features)\n"
    "        self.weight = nn.Parameter(lin.weight)\n        self.bias = nn.Parameter(lin.bias)\n"
    "        self.scaling_factor = scaling_factor\n\n    def forward(self, x, fn=module_fn):\n"
    "        return fn(x, self.weight, self.bias, self.scaling_factor)\n",
    "a lambda": PLAIN.replace("        x = self.act(x)\n", "        f = lambda v: self.act(v)\n        x = f(x)\n"),
    "a lambda of the module": PLAIN.replace("nn.ReLU()", "lambda v: v.relu()"),
    "a function within": PLAIN.replace(
        "        x = self.linear(x)\n", "        def f(v):\n            return self.linear(v)\n\n        x = f(x)\n"
    ),
    "cases": PLAIN.replace(
        "        x = self.act(x)\n",
        "        match x:\n            case torch.Tensor() as t:\n                x = self.act(t)\n",
    ),
    "tried": PLAIN.replace(
        _LINES,
        "        try:\n            x = self.linear(x)\n        except ValueError:\n            raise\n        else:\n"
        "            x = self.act(x)\n        finally:\n            x = x * self.scaling_factor\n"
        "        return x.sum(dim=1, keepdim=True)",
    ),
    "other sizes": PLAIN.replace("512", "64").replace("16", "4"),
    "annotations": PLAIN.replace("def forward(self, x):", "def forward(self, x: torch.Tensor) -> torch.Tensor:"),
    "mark and line ends": "\ufeff" + PLAIN.replace("\n", "\r\n"),
    "tabs": PLAIN.replace("    ", "\t"),
    "a dead line": PLAIN.replace("        x = x * self", "        unused = 1 + 2\n        x = x * self"),
}
OTHERS = {
    "another function": PLAIN.replace("nn.ReLU()", "nn.GELU()"),
    "another reduction": PLAIN.replace("x.sum", "x.mean"),
    "itself added": PLAIN.replace("x = x * self.scaling_factor", "x = x * torch.sigmoid(x)"),
    "only its beginning": PLAIN.replace("        x = x.sum(dim=1, keepdim=True)\n", ""),
}  # fmt: skip
