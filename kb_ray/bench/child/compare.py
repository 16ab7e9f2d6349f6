"""Whether an output is the expected one: structure, then shapes, then dtypes, then every element.

Structure is exact: a tensor is no 1-tuple, a 0-d tensor no number, keys and lengths must agree. The one
liberty is at the top: a list and a tuple of outputs count as the same. Devices, strides and `requires_grad`
do not count. Runs in the trusted process on values that were sent as bytes; does not know how they came.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from kb_ray.bench.child.indices import Source, select_alike
from kb_ray.bench.child.mismatch import PRECISION, count_wrong, describe, place
from kb_ray.bench.child.tolerance import BASE, Tolerance, is_inexact, plainly_close
from kb_ray.bench.child.tolerance import tolerances as tolerances_of
from kb_ray.bench.child.tree import flatten
from kb_ray.bench.child.values import Bag, DeviceName, DTypeName, Opaque, TensorRef, Tree
from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import ErrorDetail, Record, Status


class Comparison(Record):
    """`status` is ok, wrong_structure, wrong_shape, wrong_dtype, nonfinite or mismatch; `error` is None if ok."""

    status: Status
    error: ErrorDetail | None = None


def compare(
    expected: Any,
    got: Any,
    tolerances: Sequence[Tolerance] | None = None,
    inputs: Sequence[torch.Tensor] = (),
) -> Comparison:
    """Compare values made of tensors, numbers, None, lists, tuples, dicts and attribute bags.

    `tolerances`: one per tensor of `expected`, in order; None: worked out here, without an oracle. `inputs`: what
    the outputs were computed from, weights among them: positions are looked up in them, and without `tolerances`
    the number of terms summed per element is guessed from them. The first difference in order of stage, then of
    output, is the one told.
    """
    want_tree, want = flatten(expected)
    got_tree, have = flatten(got)
    allowed = tolerances_of(want, inputs=inputs) if tolerances is None else tolerances
    if len(allowed) != len(want):
        raise ValueError(f"{len(allowed)} tolerances for {len(want)} tensors: give one for each")
    try:
        leaves = list(_pair(want_tree, got_tree, "out", top=True))
        pairs = [_Pair(path, want[a.index], have[b.index], allowed[a.index]) for path, a, b in leaves]
        for check in (_check_shape, _check_dtype):
            for pair in pairs:
                check(pair)
        for pair in pairs:
            _check_elements(pair, inputs, pairs)
    except _Differs as difference:
        return Comparison(status=difference.status, error=difference.error)
    return Comparison(status=Status.OK)


class _Differs(Exception):
    def __init__(self, status: Status, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.status = status
        self.error = ErrorDetail(category=CATEGORY_BY_STATUS[status], message=message, **fields)


class _Pair(NamedTuple):
    path: str
    want: torch.Tensor
    have: torch.Tensor
    allowed: Tolerance


def _pair(want: Tree, have: Tree, path: str, top: bool = False) -> Iterator[tuple[str, TensorRef, TensorRef]]:
    """Tensors that stand for each other; _Differs where the trees do not agree."""
    if isinstance(want, TensorRef) and isinstance(have, TensorRef):
        yield path, want, have
    elif isinstance(want, list | tuple) and isinstance(have, list | tuple):
        if len(want) != len(have) or (type(want) is not type(have) and not top):
            raise _structure(path, want, have)
        for i, (a, b) in enumerate(zip(want, have, strict=True)):
            yield from _pair(a, b, f"{path}[{i}]")
    elif isinstance(want, dict) and isinstance(have, dict):
        yield from _pair_fields(want, have, path, lambda key: f"{path}[{key!r}]")
    elif isinstance(want, Bag) and isinstance(have, Bag):
        yield from _pair_fields(want.fields, have.fields, path, lambda key: f"{path}.{key}")
    else:
        _check_leaf(want, have, path)


def _pair_fields(
    want: dict[Any, Tree], have: dict[Any, Tree], path: str, name: Any
) -> Iterator[tuple[str, TensorRef, TensorRef]]:
    # Keys 1 and "1" differ; 1 and True cannot, since bools are no keys here.
    if want.keys() != have.keys():
        raise _structure(path, want, have)
    for key, item in want.items():
        yield from _pair(item, have[key], name(key))


def _check_leaf(want: Tree, have: Tree, path: str) -> None:
    if _is_number(want) and _is_number(have):
        if not _same_number(want, have):
            raise _value(path, want, have)
        return
    if type(want) is not type(have) or isinstance(want, Opaque):
        raise _structure(path, want, have)
    if want != have:
        raise _value(path, want, have)


def _is_number(value: Tree) -> bool:
    return type(value) in (int, float, complex)


def _same_number(want: Any, have: Any) -> bool:
    if want == have or (want != want and have != have):
        return True
    if type(want) is int:
        return False
    try:
        # Python floats are read off tensors as a rule, so they are held to what float32 is held to.
        return bool(math.isfinite(abs(want)) and abs(have - want) <= 2 * BASE[torch.float32] * abs(want))
    except OverflowError:
        return False


def _check_shape(pair: _Pair) -> None:
    want, have = tuple(pair.want.shape), tuple(pair.have.shape)
    if want != have:
        message = f"{pair.path} has shape {have}, expected {want}"
        raise _Differs(Status.WRONG_SHAPE, message, output=pair.path, expected=str(want), got=str(have))


def _check_dtype(pair: _Pair) -> None:
    want, have = (str(t.dtype).removeprefix("torch.") for t in (pair.want, pair.have))
    if want != have:
        message = f"{pair.path} has dtype {have}, expected {want}"
        raise _Differs(Status.WRONG_DTYPE, message, output=pair.path, expected=want, got=have)


def _check_elements(pair: _Pair, inputs: Sequence[torch.Tensor], pairs: Sequence[_Pair]) -> None:
    allowed = pair.allowed
    if plainly_close(pair.want, pair.have, allowed):
        return
    if not count_wrong(pair.want, pair.have, allowed) or _names_alike(pair, inputs, pairs):
        return
    found = describe(pair.want, pair.have, allowed)
    shape = tuple(pair.want.shape)
    position = place(found.first, shape)
    where = f"{pair.path} at {list(position)}" if position else pair.path
    message = f"{where}: expected {found.expected}, got {found.got}; {found.wrong} of {found.total} wrong"
    if found.max_abs_error is not None:
        message += (
            f", largest error {found.max_abs_error:.3g} (allowed {allowed.atol:.3g} + {allowed.rtol:.3g} x |expected|)"
        )
    if (found.pattern or "").startswith(PRECISION):
        message += "; PRECISION: each error is small, as from TF32 or 16-bit intermediates"
    raise _Differs(
        Status.NONFINITE if found.nonfinite else Status.MISMATCH,
        message,
        detail="\n".join(f"At {list(place(i, shape))}: expected {want}, got {got}" for i, want, got in found.others),
        output=pair.path,
        position=position,
        expected=found.expected,
        got=found.got,
        max_abs_error=found.max_abs_error,
        max_rel_error=found.max_rel_error,
        wrong_elements=found.wrong,
        total_elements=found.total,
        pattern=found.pattern,
    )


def _names_alike(pair: _Pair, inputs: Sequence[torch.Tensor], pairs: Sequence[_Pair]) -> bool:
    """Whether an integer output holds positions as good as the expected ones."""
    if is_inexact(pair.want) or pair.want.dtype is torch.bool:
        return False
    others = [Source(other.want, other.allowed) for other in pairs if other is not pair]
    return select_alike(pair.want, pair.have, inputs, others)


def _structure(path: str, want: Tree, have: Tree) -> _Differs:
    expected, got = _named(want), _named(have)
    message = f"{path} is {got}, expected {expected}"
    return _Differs(Status.WRONG_STRUCTURE, message, output=path, expected=expected, got=got)


def _value(path: str, want: Tree, have: Tree) -> _Differs:
    expected, got = _brief(repr(want)), _brief(repr(have))
    finite = not isinstance(have, float) or math.isfinite(have)
    message = f"{path}: expected {expected}, got {got}"
    return _Differs(Status.MISMATCH if finite else Status.NONFINITE, message, output=path, expected=expected, got=got)


def _named(tree: Tree) -> str:
    """What a node is, in words."""
    match tree:
        case TensorRef():
            return f"a tensor of shape {tree.shape}"
        case list() | tuple():
            return f"a {type(tree).__name__} of {len(tree)}"
        case dict():
            return _brief(f"a dict with keys {list(tree)}")
        case Bag():
            return _brief(f"an object with fields {list(tree.fields)}")
        case Opaque():
            return f"a {tree.type_name}"
        case DTypeName() | DeviceName():
            return f"the {'dtype' if isinstance(tree, DTypeName) else 'device'} {tree.name}"
        case None:
            return "None"
        case _:
            return _brief(f"the {type(tree).__name__} {tree!r}")


def _brief(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."
