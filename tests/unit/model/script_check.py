"""Runs the last answer of every line of the built-in script beside its reference, in plain PyTorch and Triton.

    TRITON_INTERPRET=1 python tests/unit/model/script_check.py cpu
    python tests/unit/model/script_check.py cuda

Prints one JSON object a task: {"task": ..., "error": null or what is wrong}. Its own process, because Triton
decides at import whether it interprets. Deliberately independent of the project's verifier.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from kb_ray.extract import extract
from kb_ray.model.builtin_script import builtin_script
from kb_ray.records import Candidate, Completion, Task
from kb_ray.tasks import Sources, plan

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}


def main(device: str) -> None:
    script = {line.task: line.turns[-1] for line in builtin_script()}
    with tempfile.TemporaryDirectory() as folder:
        for task, _ in plan(Sources(specs=("builtin",)), print):
            try:
                error = check(task, script[task.task_id], device, Path(folder))
            except Exception as caught:
                error = f"{type(caught).__name__}: {caught}"
            print(json.dumps({"task": task.task_id, "error": error}), flush=True)


def check(task: Task, text: str, device: str, folder: Path) -> str | None:
    candidate = extract(Completion(text=text, finish_reason="stop", model="scripted"))
    if not isinstance(candidate, Candidate):
        return candidate.reason
    reference = load(folder / f"reference_{task.name}.py", task.reference_code)
    code = load(folder / f"candidate_{task.name}.py", candidate.code)
    torch.manual_seed(1)
    model, init = None, []
    if task.style == "module":
        init = reference.get_init_inputs()
        model = reference.Model(*init).to(device)
    inputs = [x.to(device) for x in make_inputs(task, reference)]
    ours, theirs = [x.clone() for x in inputs], [x.clone() for x in inputs]
    with torch.no_grad():
        expected = (model or reference.reference_impl)(*ours)
        got = call(code, model, init, theirs, device)
    if type(expected) is not type(got):
        return f"returns a {type(got).__name__}"
    for want, have in zip([*tensors(expected), *ours], [*tensors(got), *theirs], strict=True):
        if want.shape != have.shape or want.dtype != have.dtype:
            return f"{have.dtype} {tuple(have.shape)} instead of {want.dtype} {tuple(want.shape)}"
        tolerance = TOLERANCE.get(want.dtype, 0)
        if not torch.allclose(want.double(), have.double(), rtol=tolerance, atol=tolerance):
            return f"differs by {(want.double() - have.double()).abs().max().item()}"
    return None


def load(path: Path, code: str) -> Any:
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_inputs(task: Task, reference: Any) -> list[torch.Tensor]:
    if task.input_shapes is None:
        return list(reference.get_inputs())
    dtypes = [(spec.shape, getattr(torch, spec.dtype)) for spec in task.input_shapes.values()]
    return [
        torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(-999, 999, shape, dtype=dtype)
        for shape, dtype in dtypes
    ]


def call(code: Any, model: Any, init: list[Any], inputs: list[torch.Tensor], device: str) -> Any:
    if hasattr(code, "ModelNew"):
        new = code.ModelNew(*init).to(device)
        new.load_state_dict(model.state_dict())
        return new(*inputs)
    weights = {name.replace(".", "_"): tensor for name, tensor in model.state_dict().items()} if model else {}
    names = list(inspect.signature(code.triton_kernel_wrapper).parameters)[len(inputs) :]
    return code.triton_kernel_wrapper(*inputs, **{name: weights[name] for name in names})


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in (value.values() if isinstance(value, dict) else value) for t in tensors(item)]


if __name__ == "__main__":
    main(sys.argv[1])
