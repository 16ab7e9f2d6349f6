"""What a reference would take is told without taking it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from kb_ray.bench.child.loading import Program
from kb_ray.bench.child.sizing import estimate
from kb_ray.tasks.quality import size_flags

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
RECURRENT = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.%s(5, 4%s)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.rand(3, %%d, 5)]
def get_init_inputs():
    return []
"""
PACKED = """
import torch
from torch.nn.utils.rnn import PackedSequence
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(5, 7, bidirectional=True)
    def forward(self, x):
        return self.layer(PackedSequence(x, torch.tensor([3, 1], device="cpu")))[0].data
def get_inputs():
    return [torch.rand(4, 5)]
def get_init_inputs():
    return []
"""
CATCHES = """
        while True:
            try:
                x = x + 1
            except Exception:
                pass
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
    guessed = {"guessed"} if known else set[str]()
    assert set(estimate(program(code))) == known | guessed


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", ["", ", batch_first=True, bidirectional=True, num_layers=3"])
def test_recurrent_layers_of_any_length_are_measured_at_once(layer: str, options: str) -> None:
    code = RECURRENT % (layer, options)
    short = program(code % 7)
    short.model = short.module.Model()
    with torch.no_grad():
        output, states = short.model(*short.module.get_inputs())
    states = states if isinstance(states, tuple) else (states,)
    assert estimate(short)["outputs"] == 4 * (output.numel() + sum(map(torch.numel, states)))
    started = time.monotonic()
    assert estimate(program(code % 100_000))["inputs"] == 4 * 3 * 100_000 * 5
    assert time.monotonic() - started < 20


def test_packed_sequences_are_measured_like_others() -> None:
    assert estimate(program(PACKED))["outputs"] == 4 * 4 * 2 * 7


@pytest.mark.parametrize("body", ["while True: x = x + 1", "while True: pass", CATCHES])
def test_an_estimate_that_takes_too_long_is_broken_off_and_told_as_guessed(body: str) -> None:
    code = LINEAR.format(rows=8, width=16).replace("return self.fc(x), x.sum()", body)
    started = time.monotonic()
    found = estimate(program(code), seconds=0.2)
    assert time.monotonic() - started < 10
    assert found == {"inputs": 512, "weights": 2048, "guessed": 4 * 512}


def test_an_import_is_not_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slowly_imported.py").write_text("import time\ntime.sleep(0.5)\nDONE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = LINEAR.format(rows=8, width=16).replace("return self.fc(x)", "import slowly_imported\n        return x")
    estimate(program(code), seconds=0.1)
    assert sys.modules.pop("slowly_imported").DONE


def test_what_is_above_the_limit_is_not_looked_at_further() -> None:
    code = LINEAR.format(rows=8, width=16)
    assert estimate(program(code), limit=511) == {"inputs": 512}
    assert set(estimate(program(code), limit=512)) == {"inputs", "weights"}
    assert set(estimate(program(code), limit=1 << 20)) == {"inputs", "weights", "outputs"}


@pytest.mark.parametrize(
    ("sizes", "flags"),
    [
        ({}, {"size_unknown"}),
        ({"inputs": 60, "weights": 30, "outputs": 10}, set()),
        ({"inputs": 60, "weights": 30, "outputs": 11}, {"too_large"}),
        ({"inputs": 101}, {"too_large"}),
        ({"inputs": 20, "guessed": 80}, set()),
        ({"inputs": 21, "guessed": 84}, {"too_large", "size_guessed"}),
        ({"inputs": 101, "guessed": 404}, {"too_large"}),
    ],
)
def test_a_size_that_was_guessed_or_is_unknown_is_told_as_such(sizes: dict[str, int], flags: set[str]) -> None:
    assert size_flags(sizes, 100) == flags


def test_the_device_is_as_before_afterwards() -> None:
    estimate(program(LINEAR.format(rows=8, width=16)))
    assert torch.ones(1).device.type == nn.Linear(1, 1).weight.device.type == "cpu"
