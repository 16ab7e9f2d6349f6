"""Properties of the status command: a store alone is enough, while it is written, when it is done and after a kill;
what cannot be shown is one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kb_ray import status
from kb_ray.config import RunConfig
from kb_ray.config_sources import parse_command
from kb_ray.env_vars import ALIASES, SETTING_PREFIX
from kb_ray.evaluation.options import EvaluateConfig
from kb_ray.tally import Tally
from kb_ray.traces.columns import SCHEMA_VERSION, VERSION_KEY
from kb_ray.traces.layout import list_parts
from kb_ray.traces.run import RunInfo, open_run
from kb_ray.traces.store import LocalStore, Store, open_store
from kb_ray.watching.presence import Presence
from tests import synthetic_traces
from tests.unit.traces import killing

KEY = "secret-of-the-model-server"


def run_info(config: RunConfig) -> RunInfo:
    return RunInfo(
        run_id="20260102-030405-abcd", fingerprint="f" * 16, identity={"model": "synthetic-32b"},
        config=config.public(), versions={}, created_at="2026-01-02T03:04:05+00:00",
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run of 40 episodes, of which the store holds 24 in three parts."""
    made = open_store(str(tmp_path / "out"))
    open_run(made, run_info(RunConfig(tasks=("builtin:1", "folder:my tasks"), multi_turn=True, api_key=KEY)))
    synthetic_traces.write_parts(made, synthetic_traces.episodes(24), per_part=8)
    return made


def presence(store: Store, planned: int = 40) -> Presence:
    return Presence(store, "r", Tally(total=planned, earlier=0, started=time.monotonic()))


def shown(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    """What the command prints; on stderr where it refuses, in one line."""
    assert status.main(argv) == code
    printed = capsys.readouterr()
    if code:
        assert printed.out == ""
        assert printed.err.startswith("error: ")
        assert printed.err.count("\n") == 1
        return printed.err
    assert printed.err == ""
    return printed.out


def as_json(capsys: pytest.CaptureFixture[str], store: Store) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capsys, store.uri, "--json"))
    return found


def test_a_run_that_goes_on_is_shown_as_running(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    going = presence(store)
    while not store.list("starts/"):
        time.sleep(0.01)
    text = shown(capsys, store.uri)
    going.end("done")
    assert re.search(r"state:     running: seen \d+ s ago", text)
    assert "episodes:  24 of 40 planned" in text
    assert re.search(r"solved:    [\d.]+% \([\d.]+% to [\d.]+%\), \d+ of 2\d judged episodes", text)
    assert "to do:     nothing, it is running" in text
    assert "model synthetic-32b" in text


def test_a_stopped_run_tells_the_command_that_goes_on(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    presence(store).end("signal", "SIGTERM received")
    found = as_json(capsys, store)
    assert (found["state"], found["why"].partition(",")[0]) == ("stopped", "SIGTERM received")
    assert found["resume"] == (
        f"python -m kb_ray.generate --tasks builtin:1 --tasks 'folder:my tasks' --multi-turn --output {store.uri}"
    )
    assert KEY not in json.dumps(found)


def test_the_command_that_goes_on_means_the_settings_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*filter(lambda name: name.startswith(SETTING_PREFIX), os.environ), *ALIASES.values()]:
        monkeypatch.delenv(name, raising=False)
    config = RunConfig(tasks=("builtin",), model="scripted", temperature=0.5, max_hours=2.5, output="s3://b/p", seed=3)
    line = shlex.split(status.command_of(run_info(config), "s3://b/p"))
    assert line[:3] == ["python", "-m", "kb_ray.generate"]
    assert parse_command(RunConfig, line[3:], prog="x") == config
    evaluated = EvaluateConfig(samples_dir="runs/a", num_tasks=3)
    line = shlex.split(status.command_of(run_info(evaluated), "evaluation_traces"))
    assert line[2] == "kb_ray.evaluate"
    assert parse_command(EvaluateConfig, line[3:], prog="x").samples_dir == "runs/a"


def test_a_password_in_the_models_address_is_not_kept(tmp_path: Path) -> None:
    config = RunConfig(vllm_url="http://me:pa55word@host:8000/v1")
    assert config.public()["vllm_url"] == "http://host:8000/v1"
    assert "pa55word" not in status.command_of(run_info(config), "out")
    store = open_store(str(tmp_path))
    presence(store).end("failed", "model at http://me:pa55word@host:8000/v1 is gone")
    said = b"".join(path.read_bytes() for path in (tmp_path / "starts").iterdir())
    assert b"is gone" in said
    assert b"pa55word" not in said


def test_a_store_without_any_start_is_judged_by_its_episodes(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, store)
    assert (found["state"], found["planned"], found["episodes"]) == ("unknown", None, 24)
    assert found["resume"]


def test_a_run_that_has_finished_nothing_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(str(tmp_path / "out"))
    open_run(store, run_info(RunConfig()))
    text = shown(capsys, store.uri)
    assert "episodes:  0" in text
    assert "last part: none yet" in text


def test_no_store_is_one_line_and_nothing_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no such folder" in shown(capsys, str(tmp_path / "nowhere"), code=2)
    assert "unknown kind of store" in shown(capsys, "gs://bucket/run", code=2)
    assert list(tmp_path.iterdir()) == []


def test_a_run_json_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text('{"run_id": 7}')
    assert "run.json is damaged or of another kb_ray: put a copy of it back, or remove it" in shown(
        capsys, str(tmp_path), code=2
    )


def test_a_newer_schema_is_one_line_that_says_what_to_do(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(store.uri) / list_parts(store)[1]
    table = pq.read_table(path)
    metadata = {VERSION_KEY: str(SCHEMA_VERSION + 1).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    line = shown(capsys, store.uri, code=2)
    assert f"schema version {SCHEMA_VERSION + 1}" in line
    assert "upgrade kb_ray" in line


def test_a_cut_part_is_named_and_the_others_are_shown(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    parts = list_parts(store)
    key = parts[1]
    path = Path(store.uri) / key
    path.write_bytes(path.read_bytes()[:-50])
    text = shown(capsys, store.uri)
    assert "episodes:  16" in text
    assert f"({len(parts)} files)" in text
    assert len([line for line in text.splitlines() if line.startswith(f"damaged:   {key}: ")]) == 1


def test_a_store_that_cannot_be_read_is_one_line(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = Path(store.uri) / "_manifest.json"
    manifest.write_text("{")
    assert "_manifest.json is damaged" in shown(capsys, store.uri, code=1)


def test_what_a_killed_writer_left_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(str(tmp_path / "out"))
    command = [sys.executable, str(killing.WRITER), store.uri, "400", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as writer:
        try:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(4)]
        finally:
            writer.kill()
    saved = int(lines[-1].split()[1])
    found = as_json(capsys, store)
    assert saved <= found["episodes"] < 400
    assert found["damaged"] == []


def test_a_killed_process_of_this_machine_is_not_shown_as_running(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys, time; from kb_ray.tally import Tally; from kb_ray.traces.store import open_store; "
        "from kb_ray.watching.presence import Presence; "
        "Presence(open_store(sys.argv[1]), 'run', Tally(40, 0, time.monotonic())); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, store.uri]) as started:
        try:
            while not list(store.list("starts/")):
                assert started.poll() is None
                time.sleep(0.05)
            assert as_json(capsys, store)["state"] == "running"
        finally:
            # To leave the block is to wait for it.
            started.kill()
    found = as_json(capsys, store)
    assert (found["state"], f"process {started.pid} of this machine is gone" in found["why"]) == ("silent", True)
    assert found["resume"]


def test_watching_shows_what_comes_and_ends_with_the_run(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    going = presence(store, planned=32)
    opened: list[str] = []
    original = LocalStore.open
    monkeypatch.setattr(LocalStore, "open", lambda self, key: (opened.append(key), original(self, key))[1])

    def grow() -> None:
        time.sleep(0.5)
        fresh = [episode for episode in synthetic_traces.episodes(60) if episode.turns][-8:]
        synthetic_traces.write_parts(store, iter(fresh))
        going.end("done")

    grower = threading.Thread(target=grow)
    grower.start()
    lines = [json.loads(line) for line in shown(capsys, store.uri, "--watch", "1", "--json").splitlines()]
    grower.join()
    told = [line["episodes"] for line in lines]
    assert (told[0], told[-1], set(told)) == (24, 32, {24, 32}), "how often it looks before they come is the machine's"
    assert lines[-1]["state"] == "finished"
    assert len(opened) == len(set(opened)) == 4, "a part is read once"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--watch", "0.1"], "error: --watch: must be >= 1.0 (got 0.1)\n"),
        (["--watch", "soon"], "error: --watch: must be a number (got soon)\n"),
        (["--watch"], "error: --watch: expected one argument; see python -m kb_ray.status --help\n"),
        (
            ["--wacth", "3"],
            "error: unrecognized arguments: --wacth 3; did you mean --watch?; see python -m kb_ray.status --help\n",
        ),
        *(
            (
                [flag, "x"],
                f"error: unrecognized arguments: {flag} x; STORE is given without a flag; see python -m kb_ray.status "
                "--help\n",
            )
            for flag in ("--store", "--stor")
        ),
    ],
)
def test_what_cannot_be_used_is_worded_as_a_setting_of_a_run(
    argv: list[str], line: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, store.uri, *argv, code=2) == line
