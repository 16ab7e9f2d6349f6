"""How many bytes a reference would take, found without taking them: one run on PyTorch's meta device.

Runs in the sandboxed process that has the reference loaded. What it says is that program's word: good for
leaving a giant out, never for a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kb_ray.bench.child.loading import Program
from kb_ray.bench.child.tree import DTYPES


def estimate(program: Program) -> dict[str, int]:
    """Bytes of `inputs`, `weights` and `outputs`; those that cannot be found out that way are left out.

    A program that asks values of its tensors, or mixes in tensors made at import, fails there at some point.
    """
    found: dict[str, int] = {}
    try:
        with torch.device("meta"), torch.no_grad():
            inputs = _inputs(program)
            found["inputs"] = _bytes(inputs)
            function = getattr(program.module, program.entry_name)
            if program.request["style"] == "module":
                args, kwargs = program.init_inputs()
                function = function(*args, **kwargs)
                found["weights"] = _bytes(function.state_dict() if isinstance(function, torch.nn.Module) else None)
            found["outputs"] = _bytes(function(*inputs))
    except Exception:
        return found
    return found


def _inputs(program: Program) -> list[Any]:
    shapes = program.request["input_shapes"]
    if shapes:
        return [torch.empty(shape, dtype=DTYPES[dtype]) for shape, dtype in shapes.values()]
    return list(program.module.get_inputs())


def _bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
