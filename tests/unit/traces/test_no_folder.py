"""A store that is to be read and cannot be there: one line, exit code 2, by every command alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray import compact, evaluate, export, report, status, verify
from kb_ray.bench import __main__ as bench

COMMANDS = {
    "status": (status, []), "report": (report, []), "compact": (compact, []), "verify": (verify, []),
    "export": (export, ["--view", "sft"]), "evaluate": (evaluate, ["--from"]), "bench": (bench, ["--recheck"]),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("a_file", "/a_file is a file, name the --output of a run"),
        ("a_file/below", "/a_file is a file, name the --output of a run"),
        ("nowhere", "nowhere: there is no such folder, name the --output of a run"),
    ],
)
def test_a_path_that_leads_to_no_folder_is_an_unusable_argument(
    command: str,
    store: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a_file").write_text("")
    module, flags = COMMANDS[command]
    assert module.main([*flags, store]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"error: trace store {tmp_path}/{store}: ")
    assert told.err.endswith(f"{said}\n")
    assert told.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a_file"]
