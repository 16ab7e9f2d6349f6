"""What tests of task sources share: two small programs, and ways to ask for a plan."""

from __future__ import annotations

from typing import Any

import pytest

from kb_ray.errors import ConfigError
from kb_ray.tasks import Sources, plan

FUNCTION = 'input_shapes = {"x": {"shape": [4], "dtype": "float32"}}\ndef reference_impl(x):\n    return x * %d\n'
MODULE = """import torch
class %s(torch.nn.Module):
    def forward(self, x):
        return x + %d
def get_inputs():
    return [torch.rand(4, 4)]
def get_init_inputs():
    return []
"""


def pairs(*specs: str, skipped: list[str] | None = None, **more: Any) -> list[tuple[str, int]]:
    def fail(line: str) -> None:
        raise AssertionError(line)

    on_skip = fail if skipped is None else skipped.append
    return [(task.task_id, sample) for task, sample in plan(Sources(specs=specs, **more), on_skip)]


def refusal(*specs: str, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        pairs(*specs, skipped=[], **more)
    line = str(caught.value)
    assert "\n" not in line
    return line
