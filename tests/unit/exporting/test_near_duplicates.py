"""Near-duplicates: clothes do not count, substance does, and different tasks are kept apart."""

from __future__ import annotations

import random
from collections.abc import Sized

import pytest

from kb_ray.exporting import duplicates
from kb_ray.exporting.duplicates import Duplicates, signature, similarity

KERNEL = """
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = x * 2.5 + 1.0
    z = tl.maximum(y, 0.0)
    tl.store(out_ptr + offsets, z, mask=mask)


def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
REFERENCE = "def reference_impl(x):\n    return torch.relu(x * 2.5 + 1.0)\n"


def words(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(f"w{draw.randrange(10**6)}" for _ in range(count))


def test_the_same_program_under_other_names_and_comments_is_one() -> None:
    seen = Duplicates(0.95)
    assert seen.add("t", REFERENCE, KERNEL)
    assert not seen.add("t", REFERENCE, "# mine\n" + KERNEL.replace("offsets", "where").replace("scale", "affine"))


def test_one_changed_constant_is_near_and_another_program_is_not() -> None:
    seen = Duplicates(0.85)
    assert seen.add("t", REFERENCE, KERNEL)
    assert not seen.add("t", REFERENCE, KERNEL.replace("BLOCK=1024", "BLOCK=512"))
    other = "y = tl.exp(-x)\n    s = 1.0 / (1.0 + y)\n    z = x * s - tl.log(y)"
    assert seen.add("t", REFERENCE, KERNEL.replace("y = x * 2.5 + 1.0\n    z = tl.maximum(y, 0.0)", other))


def test_the_same_kernel_counts_for_each_of_two_unlike_tasks_and_once_for_like_ones() -> None:
    seen = Duplicates(0.95)
    assert seen.add("a", REFERENCE, KERNEL)
    assert seen.add("b", "def reference_impl(x):\n    return x.sum(dim=1).softmax(0)\n", KERNEL)
    assert not seen.add("c", REFERENCE, KERNEL)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_the_estimate_is_near_the_true_share_of_equal_runs(share: float) -> None:
    total = 2000
    common = words(int(total * 2 * share / (1 + share)), 1)
    rest = total - len(common.split())
    estimate = similarity(signature(common + " " + words(rest, 2)), signature(common + " " + words(rest, 3)))
    assert estimate == pytest.approx(share, abs=0.12)


@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.95])
def test_what_is_well_above_the_threshold_is_found_among_many(threshold: float) -> None:
    seen = Duplicates(threshold)
    base = [words(300, seed) for seed in range(100)]
    assert all(seen.add("t", "", text) for text in base)
    assert not any(seen.add("t", "", text + " end") for text in base)


def test_one_kernel_for_many_unlike_tasks_is_compared_with_those_of_like_tasks_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []
    shares = duplicates._Signatures.shares

    def counted(self: duplicates._Signatures, marks: object, numbers: Sized) -> object:
        compared.append(len(numbers))
        return shares(self, marks, numbers)

    monkeypatch.setattr(duplicates._Signatures, "shares", counted)
    references = [words(60, seed) for seed in range(300)]
    seen = Duplicates(0.95)
    assert all(seen.add(f"t{n}", reference, KERNEL) for n, reference in enumerate(references))
    assert sum(compared) <= len(references)
    assert not any(seen.add(f"u{n}", reference, KERNEL) for n, reference in enumerate(references))
    assert sum(compared) <= 10 * len(references)


def test_a_task_whose_reference_leads_no_group_meets_the_later_ones_that_are_like_it() -> None:
    """References a, b, c in a row, of which only neighbours are alike: b is in a's group, c has one of its own."""
    chain = [words(400, 1) + " " + words(12 * n, 2) + " " + words(12 * (2 - n), 3) for n in range(3)]
    alike = [similarity(signature(chain[i]), signature(chain[j])) for i, j in ((0, 1), (1, 2), (0, 2))]
    threshold = (min(alike[:2]) + alike[2]) / 2
    assert alike[2] < threshold < min(alike[:2])
    seen = Duplicates(threshold)
    assert seen.add("a", chain[0], KERNEL)
    assert seen.add("c", chain[2], KERNEL)
    assert not seen.add("b", chain[1], KERNEL)
    other = words(300, 9)
    assert seen.add("c", chain[2], other)
    assert not seen.add("b", chain[1], other)


@pytest.mark.parametrize("code", ["", "x", "def f(:\n  broken", "\ud800"])
def test_any_text_has_a_signature(code: str) -> None:
    assert signature(code).shape == (128,)
    seen = Duplicates(0.9)
    assert seen.add("t", code, code)
    assert not seen.add("t", code, code)
