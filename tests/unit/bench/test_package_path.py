"""Where the bench's processes look for packages: not in the working folder, where anything may lie."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kb_ray.bench.package_path import package_path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A working folder as `python -m` has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path, "", str(tmp_path / "gone")])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return str(tmp_path)


def test_the_working_folder_is_left_out_and_everything_else_keeps_its_order(here: str) -> None:
    found = package_path()
    assert here not in found
    others = [path for path in sys.path if path and path != here and Path(path).is_dir()]
    assert found[: len(others)] == others


def test_it_stays_where_it_is_named_or_has_kb_ray(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"/nowhere:{here}")
    assert package_path()[0] == here
    root = str(Path(__file__).parents[3])
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", [root, *sys.path])
    assert package_path()[0] == root
