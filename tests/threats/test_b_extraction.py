"""B24 to B26: the code that was meant is found in answers as models write them, and a cut answer is told as cut."""

from __future__ import annotations

import pytest

from kb_ray.bench.static import check_static
from kb_ray.extract import extract
from kb_ray.records import Candidate, Completion, NoCandidate
from tests.fixtures_bench import KERNEL, changed

WRONG = changed("tl.maximum(x + y, 0.0)", "x * y")
IN_DOCSTRING = changed(
    "    out = torch",
    '    """Adds.\n\n    ```python\n    triton_kernel_wrapper(x, y)\n    ```\n    """\n    out = torch',
)
JIT, WRAPPER = KERNEL.split("def triton_kernel_wrapper")
DEMO = "```python\nx = torch.randn(4)\nprint(triton_kernel_wrapper(x, x))\n```\n"


def fenced(code: str, mark: str = "```", tag: str = "python") -> str:
    return f"Here it is:\n\n{mark}{tag}\n{code}{mark}\n"


def answered(text: str, finish_reason: str = "stop") -> Candidate | NoCandidate:
    return extract(Completion(text=text, finish_reason=finish_reason, model="m"))


@pytest.mark.parametrize(
    "text",
    [
        fenced(KERNEL, "~~~"),
        fenced(KERNEL, "````"),
        fenced(KERNEL, tag="py"),
        fenced(KERNEL, tag="triton"),
        fenced(KERNEL, tag=""),
        fenced(KERNEL).removesuffix("```\n"),
        KERNEL,
        f"<think>\n{fenced(WRONG)}\nNo.\n</think>\n{fenced(KERNEL)}",
        fenced(KERNEL).replace("\n", "\r\n"),
    ],
    ids=["tildes", "four backticks", "py", "triton", "no tag", "not closed", "no fence", "draft", "CRLF"],
)
def test_every_kind_of_mark_is_understood_B24(text: str) -> None:
    found = answered(text)
    assert isinstance(found, Candidate)
    assert found.code.strip() == KERNEL.strip()


def test_backticks_inside_of_the_code_end_nothing_B24() -> None:
    found = answered(fenced(IN_DOCSTRING))
    assert isinstance(found, Candidate)
    assert found.code.strip() == IN_DOCSTRING.strip()


@pytest.mark.parametrize(
    "text",
    [
        fenced(JIT) + "The wrapper:\n" + fenced("def triton_kernel_wrapper" + WRAPPER),
        fenced(KERNEL) + "How to call it:\n\n" + DEMO,
        fenced(WRONG) + "That is wrong. Better:\n\n" + fenced(KERNEL),
        fenced("pip install triton\n", tag="bash") + fenced(KERNEL),
    ],
    ids=["kernel and wrapper apart", "a demo after it", "a correction", "a shell block before it"],
)
def test_of_several_blocks_those_that_belong_together_are_taken_B25(text: str) -> None:
    found = answered(text)
    assert isinstance(found, Candidate)
    assert check_static(found.code) is None
    assert "tl.maximum(x + y, 0.0)" in found.code
    assert "print(" not in found.code


@pytest.mark.parametrize("cut", [20, 200, 500])
def test_an_answer_that_was_cut_is_truncated_and_no_syntax_error_B26(cut: int) -> None:
    for text in (fenced(KERNEL)[: cut + 30], "<think>\n" + "Let me see. " * cut):
        found = answered(text, "length")
        assert isinstance(found, NoCandidate)
        assert found.status == "truncated"
