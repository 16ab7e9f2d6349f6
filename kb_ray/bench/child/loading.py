"""Loads a program's source, makes its object and runs it: KernelBench, KernelBook and function styles.

Used for candidates and for references alike; which it is decides who constructs from what. Knows the
calling conventions only: weights by name, then by order and shape, then by the same seed; a wrapper's
further parameters by name, then by position.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from kb_ray.bench.child import provenance
from kb_ray.bench.child.defaults import Defaults
from kb_ray.bench.child.inputs import draw_from_shapes
from kb_ray.bench.child.tree import flatten
from kb_ray.records import TensorSpec

CANDIDATE_ENTRIES = {
    "module": ("ModelNew", "triton_kernel_wrapper"),
    "function": ("triton_kernel_wrapper", "ModelNew"),
}


MAX_REARRANGED = 1 << 22
"""Elements of a weight that is looked at more closely: larger ones are copied as they are."""

UNSETTLED_BY = 0.2
"""How far weights that begin as a constant are moved, as a standard deviation."""


class LoadError(Exception):
    """The source lacks what its task says it has."""


def import_source(code: str, scratch: str, prefix: str) -> ModuleType:
    """Import `code` as a module with a name of its own, from a real file so that its source can be read."""
    name = f"{prefix}_{secrets.token_hex(6)}"
    path = os.path.join(scratch, f"{name}.py")
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(code.lstrip("\ufeff").replace("\r\n", "\n"))
    if prefix == "candidate":
        provenance.WATCH.file = path
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Program:
    """One loaded source. `function` is what runs; None until it is built."""

    module: ModuleType
    entry_name: str
    request: dict[str, Any]
    cuda: bool
    function: Callable[..., Any] | None = None
    model: Any = None
    compiled: Callable[..., Any] | None = None
    defaults: Defaults = field(default_factory=Defaults)

    @classmethod
    def load(cls, request: dict[str, Any], scratch: str, cuda: bool) -> Program:
        candidate = request["role"] == "candidate"
        module = import_source(request["code"], scratch, "candidate" if candidate else "reference")
        names = CANDIDATE_ENTRIES[request["style"]] if candidate else (request["entry_point"],)
        for name in names:
            if callable(getattr(module, name, None)):
                return cls(module, name, request, cuda)
        raise LoadError(f"after import there is no {' or '.join(names)} that can be called")

    def build_reference(self, seed: int, unsettled: bool = False) -> tuple[Any, list[torch.Tensor]]:
        """Construct the reference; a tree {args, kwargs, named, state} for candidates.

        `unsettled`: weights that begin as one constant are moved off it, as training would.
        """
        entry = getattr(self.module, self.entry_name)
        if self.request["style"] == "function":
            self.function = entry
            return flatten({"args": [], "kwargs": {}, "named": {}, "state": {}})
        seed_all(seed)
        args, kwargs = self.init_inputs()
        shipped_args, shipped_kwargs = copy.deepcopy((args, kwargs))
        seed_all(seed)
        self.model = self._place(entry(*args, **kwargs))
        self.function = self.model
        if unsettled:
            unsettle(self.model)
        bound = inspect.signature(entry).bind(*args, **kwargs)
        named = {k: v for k, v in bound.arguments.items() if k not in ("args", "kwargs")}
        state = {k: v for k, v in self.model.state_dict(keep_vars=True).items() if isinstance(v, torch.Tensor)}
        return flatten({"args": shipped_args, "kwargs": shipped_kwargs, "named": named, "state": state})

    def init_inputs(self) -> tuple[list[Any], dict[str, Any]]:
        maker = getattr(self.module, "get_init_inputs", None)
        given = list(maker()) if callable(maker) else []
        if self.request["init_convention"] == "args_kwargs":
            args, kwargs = given
            return list(args), dict(kwargs)
        return given, {}

    def _place(self, model: Any) -> Any:
        return model.to("cuda") if self.cuda and isinstance(model, torch.nn.Module) else model

    def build_candidate(self, given: dict[str, Any], seed: int, n_inputs: int) -> None:
        """Construct ModelNew with the reference's arguments and weights, or bind the wrapper to them."""
        entry = getattr(self.module, self.entry_name)
        args, kwargs = given.get("args", []), given.get("kwargs", {})
        named, state = given.get("named", {}), given.get("state", {})
        if inspect.isclass(entry):
            seed_all(seed)
            model = entry(*args, **kwargs)
            copy_weights(model, state)
            self.model = self._place(model)
            self.function = self.model
            return
        extra = bind_wrapper(entry, n_inputs, named, state)
        self.function = lambda *inputs: entry(*inputs, *extra[0], **extra[1])

    def draw(self, seed: int) -> list[Any]:
        """The reference's inputs under a seed, on the device under test."""
        seed_all(seed)
        shapes = self.request["input_shapes"]
        if shapes:
            specs = {k: TensorSpec(shape=tuple(v[0]), dtype=v[1]) for k, v in shapes.items()}
            return list(draw_from_shapes(specs, seed, "cuda" if self.cuda else "cpu").values())
        maker = getattr(self.module, "get_inputs", None)
        if not callable(maker):
            raise LoadError("the reference has no get_inputs()")
        if not self.cuda:
            return list(maker())
        # Made where they are needed: gigabytes drawn on a CPU take a minute.
        with torch.device("cuda"):
            return [move(value, "cuda") for value in maker()]

    def run(self, inputs: list[Any]) -> Any:
        assert self.function is not None, "call before build"
        with torch.no_grad():
            return self.function(*inputs)

    def run_compiled(self, inputs: list[Any]) -> Any:
        """The reference through torch.compile, compiled at its first call."""
        if self.compiled is None:
            self.compiled = torch.compile(self.function)
        with torch.no_grad():
            return self.compiled(*inputs)

    def weights(self) -> list[torch.Tensor]:
        """Tensors that the loaded object keeps as parameters and buffers."""
        model = self.model
        return [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []

    def run_double(self, inputs: list[Any]) -> Any:
        """The reference in float64: the oracle that says how exact its own answer is."""
        function = self.function
        if isinstance(self.model, torch.nn.Module):
            function = copy.deepcopy(self.model).double()
        assert function is not None
        doubled = [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs]
        with torch.no_grad():
            return function(*doubled)


def seed_all(seed: int) -> None:
    """Seed every generator that a reference may draw from."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)


def move(value: Any, device: str) -> Any:
    """`value` with every tensor in it moved to `device`."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(move(v, device) for v in value)
    if type(value) is dict:
        return {k: move(v, device) for k, v in value.items()}
    return value


def unsettle(model: Any) -> None:
    """Move parameters and running statistics that hold one constant a little up or down, variances up."""
    if not isinstance(model, torch.nn.Module):
        return
    statistics = [(n, b) for n, b in model.named_buffers() if n.rpartition(".")[2] in ("running_mean", "running_var")]
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *statistics):
            if is_lazy(tensor):
                continue
            if tensor.is_floating_point() and tensor.numel() and bool((tensor == tensor.reshape(-1)[0]).all()):
                noise = torch.rand_like(tensor) if name.endswith("running_var") else torch.randn_like(tensor)
                tensor.add_(noise, alpha=UNSETTLED_BY)


def copy_weights(model: Any, state: dict[str, torch.Tensor]) -> None:
    """Give `model` the reference's weights: by name, then by order and shape; what fits neither stays.

    What stays was drawn under the reference's own seed, which is the third way. What was made of the same
    draw in the constructor (a transposed weight) stays too: copied over, it would be turned back.
    """
    if not isinstance(model, torch.nn.Module) or not state:
        return
    own = {k: v for k, v in model.state_dict(keep_vars=True).items() if isinstance(v, torch.Tensor)}
    same = {k for k, v in own.items() if k in state and state[k].shape == v.shape}
    pairs = [(own[k], state[k]) for k in same]
    # state_dict lists a module's buffers before its children's parameters: parameters go first on both sides.
    spare = _parameters_first(v for k, v in state.items() if k not in same)
    for target in _parameters_first(v for k, v in own.items() if k not in same):
        for i, source in enumerate(spare):
            if source.shape == target.shape and source.dtype == target.dtype:
                pairs.append((target, spare.pop(i)))
                break
    with torch.no_grad():
        for target, source in pairs:
            if not _rearranged(target, source):
                target.copy_(source)


def _rearranged(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether `target` holds the very elements of `source` in another order."""
    usual = target.dtype == source.dtype and target.dtype in (torch.float32, torch.float16, torch.bfloat16)
    if not usual or not 1 < target.numel() <= MAX_REARRANGED:
        return False
    ours, theirs = target.detach().flatten(), source.detach().to(target.device).flatten()
    if not torch.equal(torch.stack(ours.aminmax()), torch.stack(theirs.aminmax())) or torch.equal(ours, theirs):
        return False
    return bool(torch.equal(ours.sort().values, theirs.sort().values))


def _parameters_first(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return sorted(tensors, key=lambda t: not t.requires_grad)


def bind_wrapper(
    entry: Callable[..., Any], n_inputs: int, named: dict[str, Any], state: dict[str, torch.Tensor]
) -> tuple[list[Any], dict[str, Any]]:
    """What a wrapper gets beyond the inputs: by name, then required ones still open in state order.

    Returns further positional arguments and keyword arguments.
    """
    by_name = {name.replace(".", "_"): tensor.detach() for name, tensor in state.items()}
    offered = {**named, **by_name}
    parameters = list(inspect.signature(entry).parameters.values())
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    rest = [p for p in parameters[n_inputs:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    used = {p.name for p in rest if p.name in offered}
    queue = [tensor for name, tensor in by_name.items() if name not in used]
    keywords: dict[str, Any] = {}
    for parameter in rest:
        if parameter.name in offered:
            keywords[parameter.name] = offered[parameter.name]
        elif parameter.default is parameter.empty and queue:
            keywords[parameter.name] = queue.pop(0)
    positional: list[Any] = list(by_name.values()) if variadic and not rest else []
    only_positional = [p.name for p in rest if p.kind is p.POSITIONAL_ONLY]
    positional = [keywords.pop(name) for name in only_positional if name in keywords] or positional
    return positional, keywords
