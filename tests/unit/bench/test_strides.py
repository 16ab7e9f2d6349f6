"""Inputs keep the layout they were drawn in, from the process that draws them to the one that gets them. B12"""

from __future__ import annotations

import os

import pytest
import torch

from kb_ray.bench.child.buffers import HostBlock, attach_host, layout, nbytes
from kb_ray.bench.child.strides import distinct, duplicate, extent, fill, gaps, strides_of, with_values
from kb_ray.bench.child.tree import flatten, tensor_refs, unflatten
from kb_ray.bench.child.values import TensorRef
from kb_ray.bench.child.wire import WireError, decode, encode
from tests.unit.bench.comparing import drawn

VIEWS = {
    "contiguous": drawn(3, 4),
    "a scalar": torch.tensor(2.0),
    "channels_last": drawn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": drawn(4, 6).t(),
    "expanded": drawn(1, 5).expand(7, 5),
    "expanded in the middle": drawn(2, 1, 5).expand(2, 6, 5),
    "one number everywhere": torch.tensor(3.0).expand(4, 4),
    "every second column": drawn(8, 8)[:, ::2],
    "a slice of columns": drawn(8, 8)[:, 1:3],
    "overlapping windows": torch.arange(10.0).unfold(0, 4, 2),
    "no elements": torch.empty(0, 3).t(),
    "bools": (drawn(4, 6) > 0).t(),
    "int64": torch.arange(24).view(4, 6).t(),
    "bfloat16": drawn(4, 6, dtype=torch.bfloat16).t(),
}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) and strides_of(a) == strides_of(b)


@pytest.mark.parametrize("name", VIEWS)
def test_a_tensor_arrives_with_its_values_and_strides(name: str) -> None:
    tree, (tensor,) = flatten(VIEWS[name])
    refs = tensor_refs(decode(encode(tree)))
    block = HostBlock(refs)
    fds = [os.dup(fd) for fd in block.fds]
    fill(block.tensors[0], tensor)
    (there,), mappings = attach_host(refs, fds)
    assert same(there, VIEWS[name])
    assert same(unflatten(tree, [there]), VIEWS[name])
    assert block.guards_intact()
    there = torch.empty(0)
    for mapping in mappings:
        mapping.close()
    block.close()


@pytest.mark.parametrize("name", VIEWS)
def test_a_copy_has_the_layout_and_memory_of_its_own(name: str) -> None:
    tensor = VIEWS[name].clone() if name == "contiguous" else VIEWS[name]
    copy = duplicate(tensor)
    assert same(copy, tensor)
    if tensor.numel():
        assert copy.data_ptr() != tensor.data_ptr()
        assert copy.untyped_storage().nbytes() == nbytes(flatten(tensor)[0])


def test_an_expanded_tensor_takes_new_values_once() -> None:
    tensor = drawn(1, 5).expand(7, 5)
    assert distinct(tensor).shape == (1, 5)
    doubled = with_values(tensor, distinct(tensor) * 2)
    assert same(doubled, (tensor[:1] * 2).expand(7, 5))
    assert doubled.untyped_storage().nbytes() == 5 * 4


def test_outputs_tell_no_strides() -> None:
    tree, _ = flatten((drawn(4, 6).t(), drawn(3)), canonical=True)
    assert [ref.strides for ref in tensor_refs(tree)] == [None, None]


@pytest.mark.parametrize(
    ("shape", "strides", "elements"),
    [
        ((2, 3), None, 6),
        ((2, 3), (1, 2), 6),
        ((7, 5), (0, 1), 5),
        ((8, 4), (8, 2), 63),
        ((0, 3), (9, 9), 0),
        ((), None, 1),
    ],
)
def test_extent_reaches_from_the_first_element_to_the_last(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, elements: int
) -> None:
    assert extent(shape, strides) == elements
    ref = TensorRef(0, "float32", shape, strides=strides)
    offsets, size = layout([ref, ref])
    assert offsets[1] >= offsets[0] + elements * 4
    assert size >= offsets[1] + elements * 4


def test_only_memory_between_elements_is_a_gap() -> None:
    assert gaps((2, 3), None) is None
    assert gaps((3, 2), (1, 3)) is None
    assert gaps((7, 5), (0, 1)) is None
    found = gaps((2, 2), (4, 2))
    assert found is not None
    assert found.tolist() == [False, True, False, True, False, True, False]


def test_writing_between_the_elements_is_seen() -> None:
    block = HostBlock([TensorRef(0, "float32", (8, 4), strides=(8, 2))])
    fill(block.tensors[0], drawn(8, 4))
    assert block.guards_intact()
    block.tensors[0].as_strided((1,), (1,), 1).fill_(3)
    assert not block.guards_intact()
    block.close()


@pytest.mark.parametrize(
    "ref",
    [
        TensorRef(0, "float32", (1 << 40,), strides=(0,)),
        TensorRef(0, "float32", (2,), strides=(1 << 40,)),
        TensorRef(0, "float32", (1 << 30, 1 << 30), strides=(1 << 50, 1)),
    ],
)
def test_a_layout_that_no_honest_tensor_has_is_refused_before_any_memory_is_taken(ref: TensorRef) -> None:
    with pytest.raises(MemoryError, match="over the limit"):
        HostBlock(tensor_refs(decode(encode(ref))))


@pytest.mark.parametrize("strides", [(1,), (1, 2, 3), (-1, 1), (1.0, 1)])
def test_strides_that_do_not_fit_the_shape_are_not_sent(strides: tuple[int, ...]) -> None:
    with pytest.raises(WireError):
        encode(TensorRef(0, "float32", (2, 3), strides=strides))


def test_a_forged_stride_reaches_no_memory_outside_of_the_block() -> None:
    honest = encode(TensorRef(0, "float32", (4, 6), strides=(1, 4)))
    for at in range(len(honest)):
        for byte in (0, 1, 2, 3, 5, 127):
            data = honest[:at] + bytes([byte]) + honest[at + 1 :]
            try:
                refs = tensor_refs(decode(data))
                block = HostBlock(refs)
            except (WireError, MemoryError):
                continue
            # Whatever was told, the block holds it: a read past its end would end this process.
            assert [duplicate(tensor).shape for tensor in block.tensors] == [ref.shape for ref in refs]
            block.close()
