"""Input families and drawing from shapes: what changes and what stays."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.child.inputs import NEW_SEED, Variant, draw_from_shapes, instead_of, transform, variants
from kb_ray.bench.child.tree import DTYPES
from kb_ray.errors import TaskError
from kb_ray.records import TensorSpec

FAMILIES = ["as_drawn", "new_seed", "scaled", "sign_flipped", "shifted", "spiked", "nearly_equal"]
CHANGING = FAMILIES[2:]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def change(tensor: torch.Tensor, family: str, seed: int = 0) -> torch.Tensor:
    (changed,) = transform([tensor], Variant(family, family, False), seed)
    return changed


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(5))


@given(st.integers(1, 100))
@settings(deadline=None)
def test_there_are_n_variants_of_distinct_names_and_the_first_is_as_drawn(n: int) -> None:
    made = variants(n)
    assert len({variant.name for variant in made}) == n
    assert made[0] == Variant("as_drawn", "as_drawn", needs_new_draw=False)
    assert made == variants(100)[:n]


def test_five_variants_are_the_families_a_kernel_is_most_often_wrong_on() -> None:
    assert [v.family for v in variants(5)] == ["as_drawn", "nearly_equal", "spiked", "sign_flipped", "shifted"]
    assert {v.family for v in variants(7)} == set(FAMILIES)


def test_no_two_variants_ask_for_the_same_values() -> None:
    seen = [(v.family,) for v in variants(100) if not v.needs_new_draw]
    assert len(seen) == len(set(seen))
    assert all(v.needs_new_draw for v in variants(100) if v.family == "new_seed")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("family", CHANGING)
def test_a_family_changes_values_and_nothing_else(family: str, dtype: torch.dtype) -> None:
    x = drawn(64, 33, dtype=dtype)
    before = x.clone()
    y = change(x, family)
    assert (y.shape, y.dtype, y.device, y.stride()) == (x.shape, x.dtype, x.device, x.stride())
    assert not torch.equal(y, x)
    assert torch.isfinite(y.abs()).all()
    assert torch.equal(x, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_integers_bools_and_empty_tensors_are_copied(family: str) -> None:
    tensors = [
        torch.arange(5),
        torch.tensor([True, False]),
        torch.empty(0, 3),
        torch.tensor([7], dtype=torch.uint8),
    ]
    changed = transform(tensors, Variant("any", family, False), 0)
    for old, new in zip(tensors, changed, strict=True):
        assert torch.equal(old, new)
        assert old.dtype == new.dtype
    changed[0].zero_()
    assert tensors[0].sum() == 10


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "complex32"])
def test_narrow_dtypes_pass_through_every_family(name: str, family: str) -> None:
    x = drawn(32).to(DTYPES[name])
    assert change(x, family).dtype == x.dtype


@pytest.mark.parametrize("family", FAMILIES)
def test_zero_dimensional_and_strided_tensors_keep_their_layout(family: str) -> None:
    assert change(torch.tensor(2.0), family).shape == ()
    transposed = drawn(6, 4).t()
    assert change(transposed, family).stride() == transposed.stride()
    channels_last = drawn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert change(channels_last, family).stride() == channels_last.stride()


def test_scaled_and_sign_flipped_are_exact_and_shifted_moves_by_one_amount() -> None:
    x = drawn(1000)
    assert torch.equal(change(x, "scaled"), x * 2)
    assert torch.equal(change(x, "sign_flipped"), -2 * x)
    moved = change(x, "shifted") - x
    assert moved.min() > 2
    assert moved.max() - moved.min() < 1e-5


def test_spikes_are_few_high_and_always_reach_the_last_element() -> None:
    x = drawn(40_000)
    y = change(x, "spiked")
    changed = (y != x).nonzero().flatten()
    assert 2 <= len(changed) <= 20
    assert changed[-1] == 39_999
    assert torch.allclose(y[changed[:-1]].abs(), 10 * x.abs().max())
    assert torch.allclose(y[-1], 20 * x.abs().max())


def test_nearly_equal_leaves_most_untouched_and_depends_on_the_seed() -> None:
    x = drawn(10_000)
    y, z = change(x, "nearly_equal", 1), change(x, "nearly_equal", 2)
    assert 1 <= (y != x).sum() <= 100
    assert not torch.equal(y, z)
    assert torch.equal(y, change(x, "nearly_equal", 1))


def test_a_constant_zero_input_still_gets_other_values_where_a_family_adds() -> None:
    for family in ("shifted", "spiked", "nearly_equal"):
        assert change(torch.zeros(100), family).abs().sum() > 0


SPECS = {
    "x": TensorSpec(shape=(400, 100)),
    "h": TensorSpec(shape=(3,), dtype="float16"),
    "d": TensorSpec(shape=(3,), dtype="float64"),
    "i": TensorSpec(shape=(5000,), dtype="int64"),
    "u": TensorSpec(shape=(3,), dtype="uint8"),
    "m": TensorSpec(shape=(2000,), dtype="bool"),
    "s": TensorSpec(shape=(), dtype="torch.bfloat16"),
    "e": TensorSpec(shape=(0, 4)),
}


def test_drawing_keeps_names_order_shapes_and_dtypes_and_follows_the_seed() -> None:
    first, again, other = (draw_from_shapes(SPECS, seed) for seed in (1, 1, 2))
    assert list(first) == list(SPECS)
    for name, tensor in first.items():
        assert tuple(tensor.shape) == SPECS[name].shape
        assert str(tensor.dtype).removeprefix("torch.") == SPECS[name].dtype.removeprefix("torch.")
        assert torch.equal(tensor, again[name])
    assert not torch.equal(first["x"], other["x"])


def test_drawn_values_are_normal_small_counts_and_coins() -> None:
    values = draw_from_shapes(SPECS, 3)
    assert abs(values["x"].mean()) < 0.05
    assert abs(values["x"].std() - 1) < 0.05
    assert set(values["i"].tolist()) == set(range(10))
    assert 0.4 < values["m"].float().mean() < 0.6


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_can_be_drawn(name: str) -> None:
    assert draw_from_shapes({"x": TensorSpec(shape=(2, 2), dtype=name)}, 0)["x"].dtype == DTYPES[name]


@pytest.mark.parametrize("spec", [TensorSpec(shape=(2,), dtype="float31"), TensorSpec(shape=(-1,))])
def test_a_spec_that_cannot_be_drawn_is_named(spec: TensorSpec) -> None:
    with pytest.raises(TaskError, match="'bad'"):
        draw_from_shapes({"bad": spec}, 0)


def test_strides_stay_and_what_is_shared_by_expansion_stays_shared() -> None:
    for x in (drawn(6, 1).expand(6, 500), drawn(20, 30).t()):
        for family in FAMILIES:
            assert change(x, family).stride() == x.stride()
    spiked = change(drawn(1, 500).expand(6, 500), "spiked")
    assert torch.equal(spiked[0], spiked[5])


def test_what_a_reference_does_not_accept_is_replaced_until_a_new_draw_is() -> None:
    flipped = next(v for v in variants(7) if v.family == "sign_flipped")
    assert [v.family for v in instead_of(flipped)] == ["scaled", "new_seed"]
    assert [v.family for v in instead_of(NEW_SEED)] == []
    assert all(list(instead_of(v))[-1] == NEW_SEED for v in variants(7) if v != NEW_SEED)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_task_promises_of_its_inputs_stays(family: str) -> None:
    x = drawn(40, 40)
    assert torch.equal(change(x.triu(), family), change(x.triu(), family).triu())
    assert torch.equal(change(torch.diag(x[0]), family), torch.diag(change(torch.diag(x[0]), family).diagonal()))
    symmetric = change(x + x.t(), family)
    assert torch.equal(symmetric, symmetric.t())
    assert not torch.equal(change(x, family), change(x, family).t())
