"""A path below the home folder of a user that is none: one line wherever it is given, and no folder called `~name`."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from kb_ray import cluster, env_vars
from kb_ray.bench.access import read_access
from kb_ray.errors import ConfigError
from kb_ray.evaluation.sides import sides_of
from kb_ray.traces.store import local_path

PACKAGE = Path(__file__).parents[2] / "kb_ray"
NOBODY = "~nobody-here/x"
SCRIPTED = ("--model", "scripted", "--device", "cpu")
BUILTIN = ("--tasks", "builtin:1", *SCRIPTED)


@pytest.mark.parametrize(
    ("module", "argv"),
    [
        ("generate", [*BUILTIN, "--output", NOBODY]),
        ("generate", ["--tasks", f"folder:{NOBODY}", *SCRIPTED]),
        ("generate", ["--tasks", f"file:{NOBODY}.jsonl", *SCRIPTED]),
        ("generate", ["--tasks", "kernelbench:1", "--kernelbench-root", NOBODY, *SCRIPTED]),
        ("generate", ["--tasks", "builtin:1", "--model", f"scripted:{NOBODY}", "--device", "cpu"]),
        ("evaluate", ["--from", NOBODY]),
        ("evaluate", ["--samples-dir", NOBODY, "--tasks", "builtin:1"]),
        ("evaluate", [*BUILTIN, "--results", NOBODY]),
        ("evaluate", [*BUILTIN, "--tensorboard-log-dir", NOBODY]),
        ("evaluate", ["--compare", NOBODY, "other"]),
        ("evaluate", ["--model-path", NOBODY]),
        ("report", [NOBODY]),
        ("report", ["out", "--output", NOBODY]),
        ("report", ["out", "--plots", NOBODY]),
        ("status", [NOBODY]),
        ("verify", [NOBODY]),
        ("compact", [NOBODY]),
        ("export", [NOBODY, "--view", "rl"]),
        ("index", ["--output", NOBODY]),
        ("index", ["--output", "index", "--corpus", f"file:{NOBODY}"]),
        ("index", ["--output", "index", "--corpus", f"traces:{NOBODY}"]),
        ("bench.__main__", ["--recheck", NOBODY]),
        ("tasks.__main__", ["check", f"folder:{NOBODY}"]),
        ("train", ["sft", "--data", NOBODY, "--model-name", "no-model"]),
    ],
)
def test_it_is_one_line_and_writes_nothing(
    module: str, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert importlib.import_module(f"kb_ray.{module}").main(argv) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "~nobody-here" in shown.err
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_taken_in_full_and_one_that_only_looks_like_a_home_folder_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("~/x") == tmp_path / "x"
    assert local_path("a/~b") == Path("a/~b")
    with pytest.raises(ConfigError, match=r"^~nobody-here/x: there is no home folder ~nobody-here, name the folder"):
        local_path(NOBODY)


def test_the_two_sides_of_a_comparison(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no home folder ~nobody-here"):
        sides_of((NOBODY, "other"), str(tmp_path))


def test_a_file_of_tokens_below_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(env_vars.RAY_AUTH_TOKEN, raising=False)
    monkeypatch.setenv(env_vars.RAY_AUTH_TOKEN_PATH, NOBODY)
    assert cluster.token() is None
    with pytest.raises(ConfigError, match="tokens in ~nobody-here/x cannot be read"):
        read_access(NOBODY, {})


def test_no_path_is_expanded_in_the_way_that_raises() -> None:
    """`Path.expanduser` raises RuntimeError, which no command tells in a line; `os.path.expanduser` never raises."""
    raising = re.compile(r"\.expanduser\(\)")
    assert [path for path in PACKAGE.rglob("*.py") if raising.search(path.read_text(encoding="utf-8"))] == []
