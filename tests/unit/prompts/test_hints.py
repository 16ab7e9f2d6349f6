"""Which advice applies: accesses without a mask, facts of a correct kernel, order and number."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

import pytest
from golden_cases import CODE, TOLD

from kb_ray.prompts.hints import MAX_HINTS, Hint, doubts, facts, hints, unmasked_accesses
from kb_ray.records import ErrorDetail, Evidence, Stage, Status, Verdict

DATA = tomllib.loads((files("kb_ray.prompts") / "hints.toml").read_text("utf-8"))
HINTS = [Hint(**fields) for fields in DATA["hint"]]


@pytest.mark.parametrize(
    ("access", "guarded"),
    [
        ("tl.store(p, v)", False),
        ("tl.store(p + i, v, cache_modifier='.cs')", False),
        ("tl.store(p, v, m)", True),
        ("tl.store(p, v, mask=m)", True),
        ("tl.store(p, v, boundary_check=(0,))", True),
        ("tl.load(p)", False),
        ("tl.load(p, other=0.0)", False),
        ("tl.load(p, m)", True),
        ("tl.load(p, mask=m)", True),
        ("tl.load(p, **options)", True),
        ("torch.load(p)", True),
        ("load(p)", True),
    ],
)
def test_an_access_without_mask_or_boundary_check_is_seen(access: str, guarded: bool) -> None:
    assert (unmasked_accesses(f"x = 1\n{access}\n") == []) is guarded


def test_accesses_are_named_by_line_and_only_where_they_may_be_the_cause() -> None:
    error = ErrorDetail(category="X", message="outside")
    assert "line 10: `tl.store" in hints(Verdict.of(Status.ILLEGAL_ACCESS, Stage.TINY, error=error), CODE)[0]
    assert hints(Verdict.of(Status.TIMEOUT, Stage.TINY, error=error), CODE) == []
    many = CODE + "\n\ndef more(p):\n" + "    tl.load(p)\n" * 9
    assert "and 7 more" in hints(Verdict.of(Status.ILLEGAL_ACCESS, Stage.TINY, error=error), many)[0]


@pytest.mark.parametrize("code", [None, "", "def f(", "\x00", "(" * 5000])
def test_source_that_does_not_parse_gives_no_accesses(code: str | None) -> None:
    assert hints(Verdict.of(Status.ILLEGAL_ACCESS, Stage.TINY), code) == []


@pytest.mark.parametrize("name", TOLD)
def test_there_are_few_hints_and_each_is_a_list_item(name: str) -> None:
    found = hints(TOLD[name], CODE)
    assert len(found) <= MAX_HINTS
    assert all(hint.startswith("- ") and "\n" not in hint for hint in found)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("input and other must have equal ranks >= 2", "for vectors use `tl.sum"),
        ("Both inputs must be either 2D or 3D; (lhs: (16,) vs rhs: (16,))", "for vectors use `tl.sum"),
        ("input and other must have equal batch shapes", "with shapes (M, K) and (K, N)"),
        ("input and other must have equal reduction dimensions", "with shapes (M, K) and (K, N)"),
    ],
)
def test_every_way_of_triton_to_refuse_blocks_to_dot_has_advice(said: str, advice: str) -> None:
    error = ErrorDetail(category="X", message=f"AssertionError: {said}", detail=said)
    found = hints(Verdict.of(Status.RUNTIME_ERROR, Stage.TINY, error=error), CODE)
    assert len(found) == 1
    assert advice in found[0]


def test_facts_are_told_of_correct_kernels_only() -> None:
    evidence = Evidence(kernel_time_share=0.1, torch_ops={"aten::add": 1}, generalises={"shape": "mismatch"})
    right = Verdict.of(Status.OK, Stage.TIMING, speedup=0.5, trusted=True, evidence=evidence)
    assert list(facts(right)) == ["time_outside_kernels", "torch_computes", "fails_at_other_shapes"]
    assert list(facts(Verdict.of(Status.MISMATCH, Stage.FULL, evidence=evidence))) == []
    assert list(facts(Verdict.of(Status.OK, Stage.FULL))) == []


def test_every_hint_says_when_it_applies_and_its_expressions_are_valid() -> None:
    known = {"time_outside_kernels", "torch_computes", "fails_at_other_shapes", "fails_at_other_dtypes"}
    for hint in HINTS:
        assert [hint.error, hint.pattern, hint.fact].count(None) == 2, hint.text
        re.compile(hint.error or hint.pattern or "")
        assert hint.fact is None or hint.fact in known
        assert hint.text.endswith((".", "`"))


def test_every_doubt_that_a_measurement_can_raise_has_words() -> None:
    raised = {"speedup_ceiling", "unstable_timing", "clock_disagrees", "throttled", "gpu_busy"}
    raised |= {"below_memory_floor", "below_arithmetic_floor"}
    assert set(DATA["doubts"]) == raised
    verdict = Verdict.of(Status.OK, Stage.TIMING, evidence=Evidence(flags=("input_passes", "throttled")))
    assert doubts(verdict) == [DATA["doubts"]["throttled"]]
