"""A reference that cannot be used is told by its own file, not by the candidate's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.bench.__main__ import main, show
from kb_ray.records import ErrorDetail, Stage, Status, Verdict


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def reference_impl(:\n", "the reference is no valid Python: line 1: invalid syntax"),
        ("", "the reference is empty"),
        ("x = 1\n", "the reference defines neither reference_impl() nor a class with forward()"),
    ],
)
def test_a_reference_that_is_no_program_is_named_by_its_file(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("x = 1\n")
    Path("ref.py").write_text(text)
    assert main(["mine.py", "--reference", "ref.py", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == f"error: --reference ref.py: {said}\n"


def test_no_seconds_are_shown_where_nothing_took_any() -> None:
    error = ErrorDetail(category="REFERENCE ERROR", message="the reference raised ValueError: no")
    verdict = Verdict.of(Status.INFRA_ERROR, Stage.STATIC, error=error)
    assert verdict.seconds == {}
    assert "seconds" not in show(verdict)
    timed = verdict.model_copy(update={"seconds": {"total": 1.0}})
    assert show(timed).endswith("\nseconds: total 1.00")
