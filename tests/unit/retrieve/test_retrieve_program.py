"""What makes two programs one: everything but names, layout, comments, imports and inputs."""

from __future__ import annotations

import pytest

from benchmarks.synthetic_pairs import FAMILIES, disguised, pairs
from kb_ray.retrieve.program import core, overlap

PLAIN = """import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 16


class Model(nn.Module):
    def __init__(self, size: int):
        super(Model, self).__init__()
        self.fc = nn.Linear(size, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.fc(x)) * 2.0


def get_inputs():
    return [torch.randn(batch, 8)]


def get_init_inputs():
    return [8]
"""
SAME = {
    "another name": PLAIN.replace("Model", "Zip").replace("fc", "layer").replace("size", "width"),
    "another import": PLAIN.replace("import torch.nn as nn", "from torch import nn"),
    "a full path": PLAIN.replace("F.relu", "torch.nn.functional.relu"),
    "other inputs": PLAIN.replace("batch, 8", "3, 5, 8").replace("batch = 16", "rows = 99"),
    "a short super": PLAIN.replace("super(Model, self)", "super()"),
    "docstrings and comments": PLAIN.replace("Module):\n", 'Module):\n    """Doc."""\n\n    # why\n'),
    "no annotations": PLAIN.replace(": torch.Tensor", "").replace(" -> torch.Tensor", "").replace(": int", ""),
    "a main block": PLAIN + '\n\nif __name__ == "__main__":\n    print(Model(3))\n',
    "a byte order mark": "\ufeff" + PLAIN,
}
OTHER = {
    "another function": PLAIN.replace("F.relu", "F.gelu"),
    "another constant": PLAIN.replace("2.0", "3.0"),
    "another size": PLAIN.replace("size, 4", "size, 5"),
    "another order": PLAIN.replace("F.relu(self.fc(x))", "self.fc(F.relu(x))"),
}


@pytest.mark.parametrize("code", SAME.values(), ids=SAME)
def test_what_does_not_change_the_computation_does_not_change_the_core(code: str) -> None:
    assert core(code) == core(PLAIN)


@pytest.mark.parametrize("code", OTHER.values(), ids=OTHER)
def test_what_changes_the_computation_does(code: str) -> None:
    assert core(code).digest != core(PLAIN).digest
    assert overlap(core(code).runs, core(PLAIN).runs) < 1.0


def test_a_disguised_program_is_the_same_program_in_all_of_100() -> None:
    found = [(pair.pytorch_code, disguised(pair.pytorch_code, seed)) for seed, pair in enumerate(pairs(100, 3))]
    assert all(code != other for code, other in found)
    assert [core(code).digest == core(other).digest for code, other in found] == [True] * 100


def test_the_text_tells_operations_and_no_names() -> None:
    text = core(PLAIN).text
    assert "torch.nn.functional.relu" in text
    assert "torch.nn.Linear" in text
    assert not any(word in text for word in ("Model", "fc", "size", "get_inputs", "batch"))


@pytest.mark.parametrize("code", ["", "def broken(:", "x = 1", "import torch", "\0", "((((" * 500])
def test_anything_has_a_core_and_is_like_itself_alone(code: str) -> None:
    assert core(code) == core(code)
    assert overlap(core(code).runs, core(code).runs) == 1.0
    assert core(code).digest != core(PLAIN).digest


def test_pairs_are_repeatable_cover_all_families_and_name_none() -> None:
    found = list(pairs(200, 9))
    assert found == list(pairs(200, 9))
    assert {pair.family for pair in found} == set(FAMILIES)
    assert len(FAMILIES) == 50
    assert len({pair.pytorch_code for pair in found}) == 200
    assert not any("#" in pair.pytorch_code or '"""' in pair.pytorch_code for pair in found)
