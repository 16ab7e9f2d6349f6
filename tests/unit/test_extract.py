"""Extraction: answers in the manner of real chat models, and properties over any text."""

from __future__ import annotations

import ast
import warnings

import pytest
from extraction_cases import (
    CODE,
    DEMO,
    DOC,
    FOUND,
    IMPORTS,
    KERNEL,
    MODULE,
    OLD,
    PROSE,
    STUB,
    WRAPPER,
    Case,
    fence,
    tag,
)
from extraction_chats import CHATS
from extraction_families import FAMILIES
from extraction_versions import VERSIONS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kb_ray.extract import extract, split_reasoning
from kb_ray.extraction.syntax import outline
from kb_ray.records import Candidate, Completion, NoCandidate


def answer(text: str, finish_reason: str = "stop") -> Candidate | NoCandidate:
    return extract(Completion(text=text, finish_reason=finish_reason, model="m"))


def same(first: str, second: str) -> bool:
    return ast.dump(ast.parse(first)) == ast.dump(ast.parse(second))


CASES = FOUND | CHATS | VERSIONS | FAMILIES


def test_there_are_enough_cases_and_none_is_there_twice() -> None:
    assert len(CASES) == len(FOUND) + len(CHATS) + len(VERSIONS) + len(FAMILIES)
    assert len({case.text for case in CASES.values()}) == len(CASES) >= 240


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_meant_code_is_found_and_the_rule_named(case: Case) -> None:
    found = answer(case.text)
    assert isinstance(found, Candidate), found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert same(found.code, case.code), found.code
    assert found.rule == case.rule


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_code_found_is_found_again_however_it_is_marked(case: Case) -> None:
    found = answer(case.text)
    assert isinstance(found, Candidate)
    for text in (
        tag(found.code),
        f"{PROSE}~~~~~~python\n{found.code}~~~~~~\n",
        f"<think>\n{tag(OLD)}</think>{tag(found.code)}",
    ):
        again = answer(text)
        assert isinstance(again, Candidate)
        assert again.code == found.code


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_line_ends_do_not_matter(case: Case) -> None:
    assert answer(case.text.replace("\r\n", "\n").replace("\n", "\r\n")) == answer(case.text)


COMPLETE_THOUGH_CUT = {
    "cut in the prose after a fence": PROSE + fence(CODE) + PROSE[:20],
    "cut in the prose after a tag": tag(CODE) + PROSE[:20],
    "cut in a usage block": fence(CODE) + "Usage:\n```python\nx = torch.ra",
    "cut in a second version": fence(CODE) + "Faster:\n```python\n" + OLD[:200],
    "cut in second thoughts": fence(CODE) + "<think>\nWait, is",
    "cut between fence and closing tag": f"<triton>\n{fence(CODE)}",
    "cut in the prose after bare code": f"{CODE}\n{PROSE[:20]}",
    "cut in the prose after an open fence": f"```python\n{CODE}\n{PROSE[:20]}",
    "cut in the closing tag": f"<triton>\n{CODE}</trit",
    "cut in second thoughts after bare code": f"{CODE}\n<think>\nWait, is",
}


@pytest.mark.parametrize("text", COMPLETE_THOUGH_CUT.values(), ids=COMPLETE_THOUGH_CUT)
def test_an_answer_cut_after_its_code_still_counts(text: str) -> None:
    found = answer(text, "length")
    assert isinstance(found, Candidate)
    assert same(found.code, CODE)


TRUNCATED = {
    "in the kernel": (f"```python\n{CODE[:150]}", "inside its code"),
    "between two statements of the wrapper": (f"```python\n{CODE[: CODE.index('    return out')]}", "inside its code"),
    "in a tag": (f"<triton>\n{CODE[:-20]}", "inside its code"),
    "in the wrapper's own block": (fence(IMPORTS + KERNEL) + f"```python\n{WRAPPER[:60]}", "inside its code"),
    "in bare code": (CODE[:-15], "inside its code"),
    "in a class after bare code": (CODE + MODULE[:40], "inside its code"),
    "in a decorator after bare code": (CODE + "\n@trit", "inside its code"),
    "at the opening fence": (PROSE + "```python\n", "inside its code"),
    "in prose": (PROSE, "before its code"),
    "in thinking": (f"<think>\n{PROSE}", "inside its thinking"),
    "in thinking after a whole draft": (f"<think>\n{fence(CODE)}But", "inside its thinking"),
    "before anything": ("", "before it began"),
    "right after thinking": ("<think>a</think>\n", "before it began"),
}


@pytest.mark.parametrize(("text", "where"), TRUNCATED.values(), ids=TRUNCATED)
def test_an_answer_cut_before_its_code_is_complete_is_truncated(text: str, where: str) -> None:
    found = answer(text, "length")
    assert isinstance(found, NoCandidate)
    assert found.status == "truncated"
    assert where in found.reason


NO_CODE = {
    "nothing": ("", "empty"),
    "blank": (" \n\n", "empty"),
    "only thinking": (f"<think>{fence(CODE)}</think>", "empty"),
    "thinking never closed": (f"<think>\n{fence(CODE)}", "never closed"),
    "thinking behind a sentence never closed": (f"Sure. <think>\nLet me try.\n{fence(CODE)}", "no code"),
    "refusal": ("I cannot help with writing GPU kernels.", "no code"),
    "prose that mentions the wrapper": ("Define `def triton_kernel_wrapper(x)` and launch it.", "no code"),
    "only a command": (fence("pip install triton\n", "```bash"), "no code"),
    "only a call": (fence("print(triton_kernel_wrapper(x))\n"), "define no function"),
    "empty fence": ("```python\n```\n", "no code"),
    "empty tag": ("<triton></triton>", "no code"),
}


@pytest.mark.parametrize(("text", "why"), NO_CODE.values(), ids=NO_CODE)
def test_an_answer_without_code_says_why(text: str, why: str) -> None:
    found = answer(text)
    assert isinstance(found, NoCandidate)
    assert found.status == "no_code"
    assert why in found.reason


BROKEN = {
    "fenced": fence(CODE.replace("(x):", "(x)")),
    "tagged": tag(CODE.replace("(x):", "(x)")),
    "bare": PROSE + CODE.replace("(x):", "(x)"),
    "broken kernel before a good wrapper": fence(IMPORTS + KERNEL.replace("n, BLOCK", "n,, BLOCK") + WRAPPER),
    "broken kernel in bare code": IMPORTS + KERNEL.replace("n, BLOCK", "n,, BLOCK") + WRAPPER,
    "unclosed and broken": "```python\n" + CODE.replace("(x):", "(x)"),
    "stopped in mid-line": "```python\n" + CODE.rstrip() + " * (\n",
    "prose in the middle of the fence": fence(CODE.replace("    return out", "    (the rest is as before)!")),
    "broken around a docstring with a fence": fence(DOC.replace("wrapper(x):", "wrapper(x)")) + fence(DEMO),
    "broken, then a usage block": fence(CODE.replace("(x):", "(x)")) + fence(DEMO),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_broken_code_is_handed_over_whole_for_its_syntax_error(text: str) -> None:
    found = answer(text)
    assert isinstance(found, Candidate)
    with pytest.raises(SyntaxError):
        ast.parse(found.code)
    assert "halve_kernel" in found.code
    assert "triton_kernel_wrapper" in found.code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (fence(IMPORTS + KERNEL), IMPORTS + KERNEL),
        (fence(CODE.replace("triton_kernel_wrapper", "run")), CODE.replace("triton_kernel_wrapper", "run")),
        (IMPORTS + KERNEL, IMPORTS + KERNEL),
        (fence(IMPORTS + KERNEL) + fence("def test():\n    pass\n"), IMPORTS + KERNEL),
        (fence(MODULE.replace("ModelNew", "Model")), MODULE.replace("ModelNew", "Model")),
    ],
    ids=["kernel only", "other name", "bare kernel", "kernel before a test", "no kernel either"],
)
def test_code_without_entry_point_is_handed_over_for_the_verifier_to_name_it(text: str, code: str) -> None:
    found = answer(text)
    assert isinstance(found, Candidate)
    assert same(found.code, code)


@pytest.mark.parametrize(
    "binding",
    [
        "triton_kernel_wrapper: object = run",
        "triton_kernel_wrapper, other = run, None",
        "[a, (triton_kernel_wrapper)] = 0, run",
    ],
)
def test_an_entry_point_may_be_bound_by_any_assignment(binding: str) -> None:
    code = CODE.replace("triton_kernel_wrapper", "run") + f"\n{binding}\n"
    found = answer(fence(OLD) + PROSE + fence(code))
    assert isinstance(found, Candidate)
    assert same(found.code, code)


@pytest.mark.parametrize("binding", ["triton_kernel_wrapper: object", "a, *triton_kernel_wrapper = 0, run"])
def test_what_gives_an_entry_point_nothing_to_call_binds_none(binding: str) -> None:
    found = outline(CODE.replace("triton_kernel_wrapper", "run") + f"\n{binding}\n")
    assert found is not None
    assert not found.entry


def test_names_that_no_block_defines_do_not_make_an_older_version_win() -> None:
    found = answer(fence(OLD) + fence(KERNEL + WRAPPER.replace("torch.empty_like", "helper")))
    assert isinstance(found, Candidate)
    assert "helper" in found.code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("answer", ("answer", None)),
        ("<think>why</think>answer", ("answer", "why")),
        ("<think>\nwhy\n</think>\n\nanswer\n", ("answer", "why")),
        ("why</think>answer", ("answer", "why")),
        ("<think>why", ("", "why")),
        ("answer\n<think>more", ("answer", "more")),
        ("<think></think>answer", ("answer", None)),
        ("<think>a</think>b</think>c", ("c", "a\nb")),
        ("<think>a\n<think>b</think>c", ("c", "a\n<think>b")),
        ("<think>I write `</think>` then</think>c", ("c", "I write `</think>` then")),
        ("use `<think>` tags", ("use `<think>` tags", None)),
        ("I think in <think> tags", ("I think in <think> tags", None)),
        ("Sure. <think>\nwhy", ("Sure.", "why")),
        ("Sure! <think>why</think>answer", ("Sure!answer", "why")),
        ("<THINK>a</THINK>b", ("b", "a")),
        ("<think>a</think>b</think>", ("b", "a")),
        ("b\n</think>\n</s>", ("b\n\n</s>", None)),
        ("a</think>b</think>", ("b", "a")),
        ("[THINK]a[/THINK]b", ("b", "a")),
        ("◁think▷a◁/think▷b", ("b", "a")),
        ("<seed:think>a</seed:think>b", ("b", "a")),
        ("analysisWe try.assistantfinalb", ("b", "We try.")),
        ("Analysis: the assistantfinal mark", ("Analysis: the assistantfinal mark", None)),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>b",
            ("b", "a"),
        ),
    ],
)
def test_reasoning_is_split_from_the_answer(text: str, expected: tuple[str, str | None]) -> None:
    assert split_reasoning(text) == expected


FRAGMENTS = st.one_of(
    st.sampled_from([CODE, OLD, IMPORTS, KERNEL, WRAPPER, MODULE, STUB, DEMO, DOC, PROSE, CODE[:170]]),
    st.sampled_from(["```", "```python\n", "\n```\n", "~~~\n", "````", "<triton>", "</triton>", "<think>", "</think>"]),
    st.sampled_from(['"""', "'", "“", "”", "\x00", "\ufeff", "\r\n", "\u2028", "\n", "    ", "> ", "- ", "#", "\\"]),
    st.sampled_from(["(", "def f(", "@", "import ", CODE.replace("(x):", "(x)")]),
)
ANSWERS = st.one_of(st.text(), st.lists(st.one_of(FRAGMENTS, st.text(max_size=8)), max_size=14).map("".join))


@settings(max_examples=300, deadline=None)
@given(text=ANSWERS, finish_reason=st.sampled_from(["stop", "length", "abort"]))
@example(text="```python\n" * 300, finish_reason="stop")
@example(text="<triton>" * 300, finish_reason="stop")
@example(text="import torch\n(" * 300, finish_reason="stop")
@example(text="(" * 5000 + CODE, finish_reason="stop")
@example(text=fence("x = " + "-" * 20_000 + "1\n" + WRAPPER), finish_reason="stop")
def test_any_text_gives_code_or_a_reason(text: str, finish_reason: str) -> None:
    found = answer(text, finish_reason)
    if isinstance(found, Candidate):
        assert found.code.strip()
        assert found.rule.split("+")[0] in {"triton_tag", "fence", "bare"}
        found.code.encode("utf-8")
    else:
        assert found.reason
        assert found.status == "no_code" or finish_reason == "length"


@settings(max_examples=100, deadline=None)
@given(prose=st.lists(st.sampled_from([PROSE, "Note:\n", "- a\n- b\n", "Let's go.\n", "1. x = y\n", "\n"]), max_size=6))
def test_prose_around_a_block_changes_nothing(prose: list[str]) -> None:
    half = len(prose) // 2
    found = answer("".join(prose[:half]) + "\n" + fence(CODE) + "".join(prose[half:]))
    assert found == answer(fence(CODE))


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(min_value=1, max_value=len(CODE) - 1))
def test_a_cut_anywhere_in_an_open_block_or_in_bare_code_is_truncated(cut: int) -> None:
    for text in (f"```python\n{CODE[:cut]}", CODE[:cut], f"<triton>\n{CODE[:cut]}"):
        found = answer(text, "length")
        assert isinstance(found, NoCandidate)
        assert found.status == "truncated"
