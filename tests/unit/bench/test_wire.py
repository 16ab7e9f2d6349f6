"""The codec for value trees: exact round trips, one encoding per tree, only WireError on bad bytes."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.child.wire import (
    MAX_KEY,
    Bag,
    DeviceName,
    DTypeName,
    Limits,
    Opaque,
    TensorRef,
    WireError,
    decode,
    encode,
)

TEXT = st.text(st.characters(codec=None), max_size=12)
AXES = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=5)


def tensor_ref(index: int, dtype: str, axes: list[tuple[int, int]], grad: bool, strided: bool) -> TensorRef:
    shape, strides = tuple(size for size, _ in axes), tuple(stride for _, stride in axes)
    return TensorRef(index, dtype, shape, grad, strides if strided else None)


TENSORS = st.builds(
    tensor_ref,
    st.integers(0, 2**40),
    st.sampled_from(["float32", "bfloat16", "int64"]),
    AXES,
    st.booleans(),
    st.booleans(),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**600), 2**600),
    st.floats(),
    st.complex_numbers(),
    TEXT,
    st.binary(max_size=20),
    TENSORS,
    st.builds(DTypeName, TEXT),
    st.builds(DeviceName, TEXT),
    st.builds(Opaque, TEXT),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(TEXT, st.integers(-MAX_KEY, MAX_KEY)), inner, max_size=4),
        st.builds(Bag, TEXT, st.dictionaries(TEXT, inner, max_size=4)),
    ),
    max_leaves=20,
)


def shape_of(tree: object) -> object:
    """A comparable picture of a tree in which 1, 1.0 and True differ, NaN equals itself and order counts."""
    if type(tree) in (list, tuple):
        return type(tree).__name__, [shape_of(item) for item in tree]
    if type(tree) is dict:
        return "dict", [(shape_of(key), shape_of(item)) for key, item in tree.items()]
    if type(tree) is Bag:
        return "Bag", tree.type_name, shape_of(tree.fields)
    if type(tree) is float:
        return "float", struct.pack("<d", tree)
    if type(tree) is complex:
        return "complex", struct.pack("<dd", tree.real, tree.imag)
    return type(tree).__name__, tree


@given(TREES)
@settings(deadline=None)
def test_decode_inverts_encode_with_types_order_and_float_bits(tree: object) -> None:
    assert shape_of(decode(encode(tree))) == shape_of(tree)


@given(st.binary(max_size=200).map(lambda body: b"\x01" + body))
@settings(max_examples=600, deadline=None)
def test_any_bytes_give_the_one_tree_they_encode_or_a_wire_error(data: bytes) -> None:
    try:
        tree = decode(data)
    except WireError:
        return
    assert encode(tree) == data


@given(TREES, st.data())
@settings(deadline=None)
def test_damaged_bytes_give_the_one_tree_they_encode_or_a_wire_error(tree: object, data: st.DataObject) -> None:
    damaged = bytearray(encode(tree))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    try:
        again = decode(bytes(damaged))
    except WireError:
        return
    assert encode(again) == bytes(damaged)


@given(TREES)
@settings(deadline=None)
def test_every_strict_prefix_and_every_extension_is_rejected(tree: object) -> None:
    data = encode(tree)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:end])
    with pytest.raises(WireError):
        decode(data + b"\0")


def nested(depth: int) -> object:
    tree: object = 1
    for _ in range(depth - 1):
        tree = [tree]
    return tree


@pytest.mark.parametrize(
    ("tree", "within", "over"),
    [
        (nested(5), Limits(max_depth=5), Limits(max_depth=4)),
        ([1, 2, 3], Limits(max_nodes=4), Limits(max_nodes=3)),
        ("x" * 100, Limits(max_bytes=103), Limits(max_bytes=102)),
        (1 << 100, Limits(max_int_bytes=13), Limits(max_int_bytes=12)),
        (TensorRef(0, "float32", (1,) * 9), Limits(max_dims=9), Limits(max_dims=8)),
    ],
    ids=["depth", "nodes", "bytes", "int", "dims"],
)
def test_each_limit_holds_on_both_sides_and_exactly(tree: object, within: Limits, over: Limits) -> None:
    data = encode(tree, within)
    assert decode(data, within) == tree
    with pytest.raises(WireError):
        encode(tree, over)
    with pytest.raises(WireError):
        decode(data, over)


class Loud(int):
    """A number that must never be consulted."""

    def __index__(self) -> int:
        raise AssertionError("called")


@pytest.mark.parametrize(
    "value", [Loud(3), {1, 2}, object(), {(1, 2): 3}, {True: 1}, [lambda: 0], TensorRef(-1, "float32", ())]
)
def test_foreign_values_are_refused_without_being_asked_anything(value: object) -> None:
    with pytest.raises(WireError):
        encode(value)  # type: ignore[arg-type]


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(WireError):
        encode(loop)  # type: ignore[arg-type]


@pytest.mark.parametrize("tag", [8, 9, 10, 15, 6, 7, 3, 11])
def test_a_huge_announced_length_costs_nothing(tag: int) -> None:
    with pytest.raises(WireError):
        decode(bytes([1, tag]) + b"\xff" * 8 + b"\x7f")


def test_wire_loads_without_torch() -> None:
    check = "import sys, kb_ray.bench.child.wire; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
