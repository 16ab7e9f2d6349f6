"""Python values to value trees and back: takes tensors out of arguments and outputs, puts them in again.

Runs on both sides, in the candidate's process too, so it calls nothing that a value brings along: types
are read with `type`, tensors through functions bound when this file was loaded. That keeps odd outputs from
confusing it; it does not stop hostile code, which is the judge's business. Does not send or copy tensors.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kb_ray.bench.child.strides import strides_of
from kb_ray.bench.child.values import (
    DEFAULT_LIMITS,
    Bag,
    DeviceName,
    DTypeName,
    Limits,
    Opaque,
    TensorRef,
    Tree,
    WireError,
)

_DTYPE_NAMES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex32 "
    "complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
)
DTYPES: dict[str, torch.dtype] = {n: getattr(torch, n) for n in _DTYPE_NAMES.split() if hasattr(torch, n)}
"""Every dtype whose elements are whole bytes, by name; those that this torch lacks are missing."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_detach, _resolve_conj, _resolve_neg = (
    torch.Tensor.detach,
    torch.Tensor.resolve_conj,
    torch.Tensor.resolve_neg,
)
_as_subclass, _size = torch.Tensor.as_subclass, torch.Tensor.size
_get_dtype, _get_layout = torch.Tensor.dtype.__get__, torch.Tensor.layout.__get__
_get_device, _get_grad = torch.Tensor.device.__get__, torch.Tensor.requires_grad.__get__
_get_nested = torch.Tensor.is_nested.__get__
_type_name = type.__dict__["__name__"].__get__
_type_mro = type.__dict__["__mro__"].__get__
_type_dict = type.__dict__["__dict__"].__get__
_STRIDED, _UNPLAIN_DEVICES = torch.strided, frozenset({"meta", "lazy", "xla"})


class Attributes(dict[str, Any]):
    """What a Bag becomes: fields by attribute (`config.size`) and by key (`config["size"]`) alike."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32; WireError for a dtype that cannot travel (quantised, sub-byte)."""
    name = _NAMES.get(dtype)
    if name is None:
        raise WireError(f"tensors of {dtype} cannot be sent")
    return name


def dtype_of(name: str) -> torch.dtype:
    """torch.float32 for `float32`; WireError for a name that is none or that this torch lacks."""
    dtype = DTYPES.get(name)
    if dtype is None:
        raise WireError(f"{name!r} is not the name of a dtype here")
    return dtype


def flatten(value: object, limits: Limits = DEFAULT_LIMITS, canonical: bool = False) -> tuple[Tree, list[torch.Tensor]]:
    """`value` as a tree, and its tensors (plain, detached, sharing memory) in the order of their index.

    One tensor object in several places gets one index, so that aliased inputs stay aliased. Not so with
    `canonical`, which is for outputs: there each place has an index of its own and dicts are in order of
    their keys, so that outputs of one structure have their tensors in one order; and strides are left out.

    Named tuples become tuples; dict subclasses become dicts, or a Bag where they give attributes; dataclasses
    and namespaces become Bags; numpy scalars and subclasses of Python's own scalars become the latter.
    Anything else, also a tensor without plain memory (sparse, nested, meta, quantised, computed by its own
    class), is Opaque. WireError: nested too deep or too large.
    """
    flattening = _Flattening(limits, canonical)
    return flattening.node(value, 1), flattening.tensors


def unflatten(tree: Tree, tensors: Sequence[torch.Tensor]) -> Any:
    """The value of `tree` with `tensors[i]` in place of index i; a Bag becomes `Attributes`.

    Opaque nodes stay as they are: see `opaque_types`. WireError: an index or a dtype that does not exist, or
    a tensor of another shape or dtype than the tree says.
    """
    return _unflatten(tree, tensors, {})


def opaque_types(tree: Tree) -> tuple[str, ...]:
    """Type names of what could not be taken along, in order; empty where the tree is complete."""
    if isinstance(tree, Opaque):
        return (tree.type_name,)
    return tuple(name for child in _children(tree) for name in opaque_types(child))


def tensor_refs(tree: Tree) -> tuple[TensorRef, ...]:
    """The tree's tensors, one per index, in order of index: what buffers it needs."""
    found: dict[int, TensorRef] = {}
    pending: list[Tree] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, TensorRef):
            found[node.index] = node
        pending.extend(_children(node))
    return tuple(found[index] for index in sorted(found))


class _Flattening:
    def __init__(self, limits: Limits, canonical: bool) -> None:
        self.limits, self.canonical = limits, canonical
        self.nodes = 0
        self.tensors: list[torch.Tensor] = []
        # The tensor itself is kept beside its place: an id is one object's only while that object lives.
        self.seen: dict[int, tuple[TensorRef, torch.Tensor]] = {}

    def node(self, value: Any, depth: int) -> Tree:
        self.nodes += 1
        if depth > self.limits.max_depth or self.nodes > self.limits.max_nodes:
            raise WireError("value is nested too deep or holds too many values")
        cls = type(value)
        if value is None or cls in (bool, int, float, complex, str, bytes):
            return value  # type: ignore[no-any-return]
        mro = _type_mro(cls)
        if torch.Tensor in mro:
            return self.tensor(value, cls)
        for base in mro:
            convert = _CONVERT.get(base)
            if convert is not None:
                return convert(self, value, depth)
        if _is_dataclass(mro):
            names = [field.name for field in dataclasses.fields(value)]
            return self.bag(value, {name: object.__getattribute__(value, name) for name in names}, depth)
        return Opaque(_type_name(cls))

    def tensor(self, value: torch.Tensor, cls: type) -> Tree:
        if id(value) in self.seen and not self.canonical:
            return self.seen[id(value)][0]
        with torch._C.DisableTorchFunctionSubclass():
            plain, grad = _plain(value, cls), bool(_get_grad(value))
        if plain is None:
            return Opaque(_type_name(cls))
        # How an output lies in memory is its own affair; how an input does is part of the task.
        strides = None if self.canonical else strides_of(plain)
        ref = TensorRef(len(self.tensors), _NAMES[_get_dtype(plain)], tuple(_size(plain)), grad, strides)
        self.tensors.append(plain)
        self.seen[id(value)] = ref, value
        return ref

    def list_(self, value: list[Any], depth: int) -> Tree:
        return [self.node(item, depth + 1) for item in list.__iter__(value)]

    def tuple_(self, value: tuple[Any, ...], depth: int) -> Tree:
        return tuple([self.node(item, depth + 1) for item in tuple.__iter__(value)])

    def dict_(self, value: dict[Any, Any], depth: int) -> Tree:
        if any("__getattr__" in _type_dict(base) for base in _type_mro(type(value))):
            return self.bag(value, dict(dict.items(value)), depth)
        items = {_key(key): item for key, item in dict.items(value)}
        if None in items or len(items) != dict.__len__(value):
            return Opaque(f"{_type_name(type(value))} whose keys are neither str nor int")
        return {key: self.node(item, depth + 1) for key, item in self.ordered(items)}

    def attributes(self, value: object, depth: int) -> Tree:
        return self.bag(value, dict(object.__getattribute__(value, "__dict__")), depth)

    def bag(self, value: object, fields: dict[Any, Any], depth: int) -> Tree:
        name = _type_name(type(value))
        if any(type(field) is not str for field in fields):
            return Opaque(f"{name} whose fields are not named by str")
        return Bag(name, {field: self.node(item, depth + 1) for field, item in self.ordered(fields)})

    def ordered(self, items: dict[Any, Any]) -> list[tuple[Any, Any]]:
        pairs = list(items.items())
        return sorted(pairs, key=lambda pair: (type(pair[0]) is int, pair[0])) if self.canonical else pairs


_CONVERT: dict[type, Callable[[_Flattening, Any, int], Tree]] = {
    # numpy.float64 is a Python float too, and bool an int: the order of a type's own bases decides.
    np.generic: lambda f, v, d: f.node(v.item(), d + 1) if v.dtype.kind in "biufc" else Opaque(_type_name(type(v))),
    int: lambda f, v, d: int.__int__(v),
    float: lambda f, v, d: float.__float__(v),
    complex: lambda f, v, d: complex(complex.__complex__(v)),
    str: lambda f, v, d: str.__str__(v),
    list: _Flattening.list_,
    tuple: _Flattening.tuple_,
    dict: _Flattening.dict_,
    types.SimpleNamespace: _Flattening.attributes,
    argparse.Namespace: _Flattening.attributes,
    torch.dtype: lambda f, v, d: DTypeName(_NAMES[v]) if v in _NAMES else Opaque("dtype"),
    torch.device: lambda f, v, d: DeviceName(str(v)),
}


def _plain(value: torch.Tensor, cls: type) -> torch.Tensor | None:
    """`value` as an exact torch.Tensor over the same memory; None where it has no plain memory."""
    if torch._C._dispatch_keys(value).has(torch._C.DispatchKey.Python):
        return None
    unplain = _get_layout(value) is not _STRIDED or _get_device(value).type in _UNPLAIN_DEVICES
    if unplain or _get_nested(value) or _get_dtype(value) not in _NAMES:
        return None
    plain = _detach(value) if cls is torch.Tensor else _detach(_as_subclass(value, torch.Tensor))
    return _resolve_neg(_resolve_conj(plain))


def _is_dataclass(mro: tuple[type, ...]) -> bool:
    return any("__dataclass_fields__" in _type_dict(base) for base in mro)


def _key(key: Any) -> str | int | None:
    mro = _type_mro(type(key))
    if str in mro:
        return str.__str__(key)
    if int in mro and type(key) is not bool:
        return int.__int__(key)
    return None


def _children(tree: Tree) -> Sequence[Tree]:
    if isinstance(tree, Bag):
        return list(tree.fields.values())
    if isinstance(tree, dict):
        return list(tree.values())
    return tree if isinstance(tree, list | tuple) else ()


def _unflatten(tree: Tree, tensors: Sequence[torch.Tensor], made: dict[int, torch.Tensor]) -> Any:
    match tree:
        case TensorRef():
            return made.setdefault(tree.index, _placed(tree, tensors))
        case Bag():
            return Attributes((name, _unflatten(item, tensors, made)) for name, item in tree.fields.items())
        case dict():
            return {key: _unflatten(item, tensors, made) for key, item in tree.items()}
        case list():
            return [_unflatten(item, tensors, made) for item in tree]
        case tuple():
            return tuple([_unflatten(item, tensors, made) for item in tree])
        case DTypeName():
            return dtype_of(tree.name)
        case DeviceName():
            return _device_of(tree.name)
        case _:
            return tree


def _placed(ref: TensorRef, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if ref.index >= len(tensors):
        raise WireError(f"tensor {ref.index} of {len(tensors)} does not exist")
    tensor = tensors[ref.index]
    if tuple(tensor.shape) != ref.shape or tensor.dtype is not dtype_of(ref.dtype):
        found = f"{dtype_name(tensor.dtype)} {tuple(tensor.shape)}"
        raise WireError(f"tensor {ref.index} is {found}, the tree says {ref.dtype} {ref.shape}")
    if not ref.requires_grad:
        return tensor
    return tensor.detach().requires_grad_() if tensor.is_floating_point() or tensor.is_complex() else tensor


def _device_of(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        raise WireError(f"{name!r} is not the name of a device") from None
