"""Folders of evaluators: those of the living stay, those of the dead and of nobody go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kb_ray.bench import sweep


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sweep, "base_dir", lambda: tmp_path)
    return tmp_path


def test_a_folder_outlives_others_claims_and_not_its_owner(base: Path) -> None:
    mine = sweep.claim("mine")
    code = f"import sys; sys.path[:0] = {sys.path!r}\nfrom pathlib import Path\nfrom kb_ray.bench import sweep\n"
    code += f"sweep.base_dir = lambda: Path({str(base)!r})\nprint(sweep.claim('theirs'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    theirs = Path(done.stdout.strip())
    assert theirs.is_dir()
    sweep.claim("next")
    assert (mine.is_dir(), theirs.exists()) == (True, False)


def test_a_folder_that_names_no_owner_goes_once_nobody_can_be_at_it(base: Path) -> None:
    fresh, old = base / "fresh", base / "old"
    for folder in (fresh, old):
        (folder / "candidates").mkdir(parents=True)
    os.utime(old, times=(time.time() - 3600,) * 2)
    sweep.claim("next")
    assert (fresh.is_dir(), old.exists()) == (True, False)


def test_whoever_is_killed_while_removing_a_folder_leaves_its_owner_named(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, flatten = base / "theirs", sweep._flatten
    for part in ("candidates", "references"):
        (folder / part / "groups").mkdir(parents=True)
    (folder / "owner").write_text("1 0")

    def killed(top: int, name: str) -> list[str]:
        flatten(top, name)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "_flatten", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep.remove(folder)
    assert folder.exists()
    monkeypatch.setattr(sweep, "_flatten", flatten)
    sweep.claim("next")
    assert not folder.exists()
