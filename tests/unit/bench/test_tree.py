"""Values to trees and back: what comes out equals what went in, and odd objects are never asked anything."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from kb_ray.bench.child.tree import (
    DTYPES,
    Attributes,
    dtype_name,
    dtype_of,
    flatten,
    opaque_types,
    tensor_refs,
    unflatten,
)
from kb_ray.bench.child.values import Bag, DeviceName, DTypeName, Opaque, TensorRef, WireError
from kb_ray.bench.child.wire import decode, encode


def there_and_back(value: object) -> Any:
    tree, tensors = flatten(value)
    return unflatten(decode(encode(tree)), tensors)


def test_containers_scalars_dtypes_and_devices_survive_the_journey() -> None:
    value = [
        1,
        True,
        None,
        2.5,
        1j,
        "x",
        b"y",
        (1, [2]),
        {"a": 1, 3: (4,)},
        torch.float16,
        torch.device("cpu"),
    ]
    again = there_and_back(value)
    assert again == value
    assert [type(item) for item in again] == [type(item) for item in value]


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_name_leads_back_to_its_dtype_and_its_tensors_travel(name: str) -> None:
    dtype = dtype_of(name)
    assert dtype_name(dtype) == name
    tree, tensors = flatten(torch.empty(2, 3, dtype=dtype))
    assert tree == TensorRef(0, name, (2, 3))
    assert unflatten(tree, tensors) is tensors[0]


def test_dtypes_that_cannot_travel_are_named_in_the_error() -> None:
    with pytest.raises(WireError, match="qint8"):
        dtype_name(torch.qint8)
    with pytest.raises(WireError, match="float99"):
        dtype_of("float99")


def test_one_tensor_in_two_places_is_one_buffer_and_one_object_again() -> None:
    x = torch.ones(2)
    tree, tensors = flatten((x, {"again": x}, torch.ones(2)))
    assert tree == (
        TensorRef(0, "float32", (2,)),
        {"again": TensorRef(0, "float32", (2,))},
        TensorRef(1, "float32", (2,)),
    )
    first, second, other = unflatten(tree, tensors)
    assert first is second["again"]
    assert first is not other


def test_canonical_trees_of_one_structure_have_their_tensors_in_one_order_B09() -> None:
    x, y = torch.ones(2), torch.ones(3)
    one, first = flatten({"b": x, 2: x, "a": SimpleNamespace(q=y, p=x), 1: y}, canonical=True)
    other, second = flatten({1: y * 1, "a": SimpleNamespace(p=x * 1, q=y), 2: x * 1, "b": x}, canonical=True)
    assert one == other
    assert [tuple(tensor.shape) for tensor in first] == [(2,), (3,), (2,), (3,), (2,)]
    assert [t.shape for t in first] == [t.shape for t in second]
    assert list(one) == ["a", "b", 1, 2]


def test_flattened_tensors_share_memory_and_carry_no_graph() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    tree, (tensor,) = flatten(weight)
    assert tree == TensorRef(0, "float32", (3,), requires_grad=True)
    assert type(tensor) is torch.Tensor
    assert not tensor.requires_grad
    assert tensor.data_ptr() == weight.data_ptr()
    assert unflatten(tree, [torch.ones(3)]).requires_grad


class Pair(NamedTuple):
    left: int
    right: int


class Colour(enum.IntEnum):
    RED = 3


class Dotted(dict[Any, Any]):
    __getattr__ = dict.__getitem__


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    size: int


@pytest.mark.parametrize(
    ("value", "tree"),
    [
        (Pair(1, 2), (1, 2)),
        (torch.ones(2, 3).size(), (2, 3)),
        (collections.OrderedDict(a=1, b=2), {"a": 1, "b": 2}),
        (collections.deque([1]), Opaque("deque")),
        (Colour.RED, 3),
        (np.float64(0.5), 0.5),
        (np.int32(7), 7),
        (np.bool_(True), True),
        (np.ones(2), Opaque("ndarray")),
        (np.datetime64("2020"), Opaque("datetime64")),
        (SimpleNamespace(a=1), Bag("SimpleNamespace", {"a": 1})),
        (argparse.Namespace(a=(1,)), Bag("Namespace", {"a": (1,)})),
        (Dotted(a=1), Bag("Dotted", {"a": 1})),
        (torch.float32, DTypeName("float32")),
        (torch.device("cuda", 1), DeviceName("cuda:1")),
        ({1, 2}, Opaque("set")),
        (iter([1]), Opaque("list_iterator")),
        (torch.nn.ReLU(), Opaque("ReLU")),
        (torch.ones(2).to_sparse(), Opaque("Tensor")),
        (torch.ones(2, device="meta"), Opaque("Tensor")),
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), Opaque("Tensor")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_object_has_one_picture(value: object, tree: object) -> None:
    assert flatten(value)[0] == tree
    assert type(flatten(value)[0]) is type(tree)


def test_structseq_and_dataclass_outputs_keep_their_tensors() -> None:
    values, indices = there_and_back(torch.ones(2, 3).max(dim=1))
    assert values.tolist() == [1, 1]
    assert indices.dtype is torch.int64
    result = there_and_back(Result(torch.tensor(2.0), 5))
    assert result.loss.item() == 2.0
    assert result["size"] == 5


def test_a_bag_answers_by_attribute_and_by_key_and_lacks_what_it_lacks() -> None:
    config = there_and_back(Dotted(hidden=4, inner=SimpleNamespace(depth=2)))
    assert config.hidden == config["hidden"] == 4
    assert config.inner.depth == 2
    assert not hasattr(config, "missing")
    config.hidden = 5
    assert dict(**config)["hidden"] == 5
    assert flatten(config)[0] == Bag("Attributes", {"hidden": 5, "inner": Bag("Attributes", {"depth": 2})})
    assert type(config) is Attributes


def angry(*_: object, **__: object) -> Any:
    raise AssertionError("was called")


class Angry:
    __getattribute__ = __iter__ = __len__ = __bool__ = __eq__ = __hash__ = __repr__ = angry


class AngryTensor(torch.Tensor):
    __torch_function__ = classmethod(angry)


class AngryList(list[Any]):
    __iter__ = __len__ = __getitem__ = angry


class AngryDict(dict[Any, Any]):
    __iter__ = __len__ = items = keys = angry


class Lazy(torch.Tensor):
    """Computes on being looked at."""

    @staticmethod
    def __new__(cls) -> Lazy:
        return torch.Tensor._make_wrapper_subclass(cls, (2,))  # type: ignore[no-any-return, attr-defined]

    __torch_dispatch__ = classmethod(angry)


def test_returned_objects_are_never_consulted() -> None:
    overridden = torch.ones(2)
    for name in ("cpu", "detach", "to", "contiguous", "size", "clone"):
        setattr(overridden, name, angry)
    subclass = torch.ones(2).as_subclass(AngryTensor)
    value = (Angry(), overridden, subclass, AngryList([1]), AngryDict(a=2), Lazy())
    tree, tensors = flatten(value)
    plain = [TensorRef(i, "float32", (2,)) for i in range(2)]
    assert tree == (Opaque("Angry"), *plain, [1], {"a": 2}, Opaque("Lazy"))
    assert [type(tensor) for tensor in tensors] == [torch.Tensor, torch.Tensor]


def test_conjugate_and_negative_views_arrive_as_what_they_show() -> None:
    x = torch.tensor([1 + 2j])
    (conjugate, imaginary), expected = there_and_back((x.conj(), x.conj().imag)), (1 - 2j, -2.0)
    assert (conjugate.item(), imaginary.item()) == expected
    assert not conjugate.is_conj()
    assert not imaginary.is_neg()


def test_values_that_hold_themselves_or_explode_end_in_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    bomb: list[Any] = []
    for _ in range(40):
        bomb = [bomb, bomb]
    for value in (loop, bomb):
        with pytest.raises(WireError):
            flatten(value)


@pytest.mark.parametrize("value", [{(1, 2): 3}, {True: 1}, {None: 1}, {1.5: 2}, {Colour.RED: 1, 3.5: 2}])
def test_dicts_with_other_keys_are_opaque(value: object) -> None:
    assert isinstance(flatten(value)[0], Opaque)


def test_what_could_not_be_taken_along_is_listed_in_order() -> None:
    assert opaque_types(flatten([{1}, {"a": torch.nn.ReLU(), "b": 1}, SimpleNamespace(c=iter(()))])[0]) == (
        "set",
        "ReLU",
        "tuple_iterator",
    )


def test_needed_buffers_are_listed_once_each_in_order() -> None:
    x, y = torch.ones(1), torch.ones(2)
    tree, _ = flatten({"a": [x, y], "b": SimpleNamespace(c=x)})
    assert tensor_refs(tree) == (TensorRef(0, "float32", (1,)), TensorRef(1, "float32", (2,)))


@pytest.mark.parametrize(
    "tree",
    [
        TensorRef(1, "float32", (2,)),
        TensorRef(0, "float32", (3,)),
        TensorRef(0, "float16", (2,)),
        DTypeName("no"),
        DeviceName("??"),
    ],
)
def test_trees_that_do_not_fit_their_tensors_are_refused(tree: Any) -> None:
    with pytest.raises(WireError):
        unflatten([tree], [torch.ones(2)])
