"""What a pool leaves outside its workers is seen, and what belongs to every pool is not taken for it."""

from __future__ import annotations

import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from benchmarks import leftovers
from kb_ray.bench.sweep import base_dir


def test_the_folder_of_all_evaluators_counts_by_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = leftovers.outside()["temporary files"]
    base_dir().mkdir()
    assert leftovers.outside()["temporary files"] == before == set()
    (base_dir() / "w-1-x").mkdir()
    (tmp_path / "left").touch()
    assert leftovers.outside()["temporary files"] == {f"{base_dir().name}/w-1-x", "left"}


def test_processes_are_found_by_a_word_in_their_command_line() -> None:
    word = uuid.uuid4().hex
    with subprocess.Popen(["sh", "-c", "read _", word], stdin=subprocess.PIPE) as process:
        assert leftovers.processes(word) == [f"{process.pid} sh -c read _ {word} "]
        process.communicate()
    assert leftovers.processes(word) == []
