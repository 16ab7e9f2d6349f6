"""The lines of an error: source under it, noise gone, nothing said twice, names bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray.prompts.details import counted, details, listed, without_noise
from kb_ray.records import ErrorDetail, Evidence, Stage, Status, Verdict

SOURCE = "import triton\n\n\n@triton.jit\ndef k(x):\n    y = tl.tanh(x)\n"


def lines(code: str | None = SOURCE, status: Status = Status.COMPILE_ERROR, **fields: object) -> list[str]:
    error = ErrorDetail.model_validate({"category": "X", "message": "it failed", **fields})
    return details(Verdict.of(status, Stage.FULL, error=error), code).splitlines()


def test_the_source_line_stands_under_the_key_line() -> None:
    assert lines(line=6) == ["line 6: it failed", "6 |     y = tl.tanh(x)"]


def test_a_source_line_that_the_detail_shows_already_is_not_shown_twice() -> None:
    shown = "6 |     y = tl.tanh(x)\n          ^"
    assert lines(line=6, detail=shown) == ["line 6: it failed", *shown.splitlines()]
    assert lines(line=6, detail="it failed\nline 6: y = tl.tanh(x)") == ["line 6: it failed", "6 |     y = tl.tanh(x)"]


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        ("CompilationError: no tanh", "at 5:32:\nno tanh"),
        ("TypeError: no tanh", "no tanh"),
        ("torch.OutOfMemoryError: no tanh", "no tanh"),
        ("needs a GPU: RuntimeError: no tanh", "no tanh"),
        ("UnsupportedLanguageConstruct: no tanh", "no tanh:"),
    ],
)
def test_a_key_line_is_not_repeated_without_its_type(message: str, detail: str) -> None:
    assert [line for line in lines(message=message, detail=detail) if "no tanh" in line] == [message]


def test_a_line_that_says_more_than_the_key_line_is_kept() -> None:
    assert lines(message="ValueError: a: b", detail="a: b\nb\na: b and c") == ["ValueError: a: b", "b", "a: b and c"]


@pytest.mark.parametrize(("line", "code"), [(99, SOURCE), (6, None), (None, SOURCE), (1, "")])
def test_without_the_line_there_is_no_source(line: int | None, code: str | None) -> None:
    assert not any("|" in one for one in lines(code, line=line))


def test_frames_of_other_peoples_files_are_left_out_and_those_of_the_candidate_kept() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.11/site-packages/triton/runtime/jit.py", line 345, in <lambda>\n'
        "    return lambda *args, **kwargs: self.run(grid=grid)\n"
        "           ^^^^^^^^^^^^^^^\n"
        '  File "/usr/lib/python3.11/ast.py", line 418, in visit\n'
        "    return visitor(node)\n"
        '  File "candidate.py", line 6, in k\n'
        "    y = tl.tanh(x)\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "AttributeError: no tanh\n"
    )
    assert without_noise(text) == [
        '  File "candidate.py", line 6, in k',
        "    y = tl.tanh(x)",
        "AttributeError: no tanh",
    ]


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e")), max_size=5))
def test_a_message_without_a_traceback_stays_as_it_is(texts: list[str]) -> None:
    plain = [f"E {text}" for text in texts]
    assert without_noise("\n".join(plain)) == [line.rstrip() for line in plain]


def test_what_the_key_line_says_is_not_said_again() -> None:
    whole = "out at [3]: expected 1.5, got 0; 9 of 10 wrong, largest error 1.5 (allowed 1e-05)"
    fields = {"position": (3,), "expected": "1.5", "got": "0", "wrong_elements": 9, "total_elements": 10}
    found = lines(
        status=Status.MISMATCH,
        message=whole,
        max_abs_error=1.5,
        max_rel_error=1.0,
        pattern="every 2-th element from flat index 3",
        **fields,
    )
    assert found == [whole, "Pattern: every 2-th element from flat index 3", "Largest error: relative 1"]
    shape = "out has shape (2, 1), expected (2,)"
    assert lines(status=Status.WRONG_SHAPE, message=shape, expected="(2,)", got="(2, 1)", output="out") == [shape]


def test_further_elements_in_the_detail_are_shown() -> None:
    found = lines(status=Status.MISMATCH, position=(3,), expected="1", got="0", detail="At [4]: expected 2, got 0")
    assert found == ["it failed", "At [3]: expected 1, got 0", "At [4]: expected 2, got 0"]


def test_names_are_bounded_and_the_most_frequent_come_first() -> None:
    assert counted({"b": 1, "a": 1, "c": 5}) == "c x5, a x1, b x1"
    assert listed([str(n) for n in range(11)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 3 more"
    assert len(counted({"n" * 5000 + str(n): n for n in range(500)})) < 800


def test_only_doubts_about_the_measurement_are_told_and_nothing_about_the_task() -> None:
    flags = ("below_memory_floor", "constant_passes", "ignores_input", "zeros_pass_kernelbench")
    verdict = Verdict.of(Status.HACK, Stage.FULL, evidence=Evidence(kernel_launches=1, flags=flags))
    found = details(verdict, None)
    assert "reading the inputs and writing the outputs" in found
    assert not any(word in found for word in ("constant", "ignores", "zeros"))
