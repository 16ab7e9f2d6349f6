"""Folders of evaluators: those of the living stay, those of the dead and of nobody go."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

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


def test_a_folder_goes_at_once_whose_owner_was_killed_before_it_was_named(base: Path) -> None:
    (base / "nameless" / "candidates").mkdir(parents=True)
    sweep.claim("next")
    assert not (base / "nameless").exists()


def test_a_folder_that_is_being_claimed_is_nobody_elses(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept, during = threading.Thread(target=sweep.sweep), list[Path]()

    def slowly(pid: int) -> int | None:
        swept.start()
        swept.join(0.5)
        during.extend(base.iterdir())
        return 1

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "born", slowly)
        mine = sweep.claim("mine")
    swept.join()
    assert during == [mine]
    assert mine.is_dir()


def test_where_there_are_no_locks_a_nameless_folder_goes_after_a_while(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, old = base / "fresh", base / "old"
    for folder in (fresh, old):
        (folder / "candidates").mkdir(parents=True)
    os.utime(old, times=(time.time() - 3600,) * 2)
    monkeypatch.setattr(sweep, "_lock", lambda path, kind, patience_s=0.0: None)
    sweep.claim("next")
    assert (fresh.is_dir(), old.exists()) == (True, False)


@pytest.mark.parametrize(
    ("kind", "waits"),
    [pytest.param(fcntl.LOCK_SH, 1, id="while it claims"), pytest.param(fcntl.LOCK_EX, 2, id="while it sweeps")],
)
def test_whoever_is_stopped_with_the_lock_holds_up_others_for_seconds(
    base: Path, monkeypatch: pytest.MonkeyPatch, kind: int, waits: int
) -> None:
    """Those who sweep wait once for all folders; those who claim wait for no other who does."""
    for name in ("fresh-1", "fresh-2", "old"):
        (base / name / "candidates").mkdir(parents=True)
    os.utime(base / "old", times=(time.time() - 3600,) * 2)
    waited, stopped = list[float](), sweep._lock(base, kind)
    assert stopped is not None
    clock = SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append, time=time.time)
    monkeypatch.setattr(sweep, "time", clock)
    claiming = threading.Thread(target=sweep.claim, args=("next",), daemon=True)
    claiming.start()
    claiming.join(60)
    over = not claiming.is_alive()
    os.close(stopped)
    assert over
    assert sum(waited) == pytest.approx(waits * sweep._LOCK_S, abs=0.1)
    assert {folder.name.partition("-")[0] for folder in base.iterdir()} == {"fresh", "next"}


def test_an_owner_has_its_lock_although_another_looks_whether_it_has(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, looks = sweep._taken, iter([True])

    def looked_at(held: int, kind: int) -> bool:
        return not (kind == fcntl.LOCK_EX and next(looks, False)) and taken(held, kind)

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_taken", looked_at)
        mine = sweep.claim("mine")
    assert sweep._locked(mine)


def test_giving_up_a_folder_takes_those_of_owners_that_ended_since(base: Path) -> None:
    mine = sweep.claim("mine")
    (base / "late" / "candidates").mkdir(parents=True)
    (base / "late" / "owner").write_text("4194304 1")
    sweep.release(mine)
    assert not list(base.iterdir())


def test_a_folder_goes_although_somebody_still_writes_into_it(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that has been killed a moment ago."""
    mine, flatten, last = sweep.claim("mine"), sweep._flatten, list("123456789")

    def written_to(top: int, name: str) -> list[str]:
        moved = flatten(top, name)
        if last:
            os.mkdir(last.pop(), dir_fd=top)
        return moved

    monkeypatch.setattr(sweep, "_flatten", written_to)
    sweep.remove(mine)
    assert not mine.exists()


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


def test_a_base_folder_that_a_cleaner_took_is_made_anew(base: Path) -> None:
    mine = sweep.claim("mine")
    shutil.rmtree(base)
    sweep.sweep()
    sweep.release(mine)
    assert sweep.claim("next").is_dir()


def test_a_base_folder_that_goes_while_it_is_swept_is_no_error(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, said = sweep.claim("mine"), sweep._said
    (base / "nameless").mkdir()

    def gone(folder: Path, name: str) -> str:
        shutil.rmtree(base, ignore_errors=True)
        return said(folder, name)

    monkeypatch.setattr(sweep, "_said", gone)
    sweep.release(mine)
    assert not base.exists()


def test_a_folder_that_another_removes_meanwhile_is_no_error(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = sweep.claim("mine")

    def gone(folder: Path, pattern: str) -> list[Path]:
        shutil.rmtree(folder)
        raise FileNotFoundError(folder)

    monkeypatch.setattr(Path, "glob", gone)
    sweep.remove(mine)
    assert not mine.exists()


@pytest.mark.parametrize("release", [False, True])
def test_what_cannot_be_removed_is_waited_for_once_and_holds_up_nothing_else(
    base: Path, monkeypatch: pytest.MonkeyPatch, release: bool
) -> None:
    mine, erase, waited = sweep.claim("mine"), sweep.erase, list[float]()
    names = ("stuck-1", "stuck-2", "stuck-3", "late")
    for name in names:
        (base / name / "candidates").mkdir(parents=True)
        (base / name / "owner").write_text("4194304 1")
    again = iter([True])

    def stays(folder: Path) -> bool:
        name, *part = folder.relative_to(base).parts
        return name.startswith("stuck") or (name == "late" and bool(part) and next(again, False)) or erase(folder)

    clock = SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append, time=time.time)
    monkeypatch.setattr(sweep, "erase", stays)
    monkeypatch.setattr(sweep, "time", clock)
    if release:
        sweep.release(mine)
    else:
        sweep.claim("next")
    assert sum(waited) == pytest.approx(sweep._REMOVAL_S, abs=0.1)
    assert {name for name in names if (base / name).exists()} == {"stuck-1", "stuck-2", "stuck-3"}


def claimed(base: Path, name: str, there: str) -> tuple[Path, subprocess.Popen[bytes]]:
    """A folder whose owner's number is that of nobody, with a recorded group whose number is that of somebody."""
    folder, somebody = base / name, subprocess.Popen(["sleep", "60"], start_new_session=True)
    (folder / "candidates" / "groups").mkdir(parents=True)
    (folder / "candidates" / "groups" / str(somebody.pid)).touch()
    (folder / "owner").write_text("4194304 1")
    (folder / "place").write_text(there)
    return folder, somebody


@pytest.mark.parametrize(
    ("place", "stays", "lives"),
    [
        pytest.param("{boot} {pids}", False, False, id="of this container"),
        pytest.param("{boot} pid:[1]", True, True, id="of another container"),
        pytest.param("6b86b273-ff34-4e5b {pids}", False, True, id="of an earlier boot"),
    ],
)
def test_numbers_of_another_place_are_not_taken_for_ours(base: Path, place: str, stays: bool, lives: bool) -> None:
    boot, pids = sweep.place().split()
    folder, somebody = claimed(base, "theirs", place.format(boot=boot, pids=pids))
    try:
        sweep.claim("next")
        assert folder.exists() == stays
        with pytest.raises(subprocess.TimeoutExpired) if lives else nullcontext():
            somebody.wait(0.5 if lives else 10)
    finally:
        somebody.kill()
        somebody.wait()


def test_words_that_name_nobody_are_no_error(base: Path) -> None:
    (base / "odd").mkdir()
    (base / "odd" / "owner").write_text("what is this")
    sweep.claim("next")
    assert not (base / "odd").exists()


CLAIMS = """import sys; sys.path[:0] = {path!r}
from pathlib import Path
from kb_ray.bench import sweep
sweep.base_dir = lambda: Path({base!r})
sweep.place = lambda: {place!r}
print(sweep.claim("theirs"), flush=True)
sys.stdin.read()
"""


def test_another_containers_folder_goes_some_time_after_its_owner(base: Path) -> None:
    code = CLAIMS.format(path=sys.path, base=str(base), place=f"{sweep.place().split()[0]} pid:[1]")
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        os.utime(folder, times=(time.time() - 3600,) * 2)
        sweep.remove(sweep.claim("next"))
        assert folder.exists(), "its owner lives"
    finally:
        owner.kill()
        owner.communicate()
    os.utime(folder)
    sweep.remove(sweep.claim("next"))
    assert folder.exists(), "what its owner ran may live still"
    os.utime(folder, times=(time.time() - 3600,) * 2)
    sweep.remove(sweep.claim("next"))
    assert not folder.exists()
