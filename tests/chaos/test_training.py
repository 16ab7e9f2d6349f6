"""kill -9 of a run of training, at any moment: started again it goes on, loses nothing and learns the same."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb_ray.checkpoints import FOLDER, MARK
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.store import open_store
from tests.chaos.running import PATIENCE_S, check_no_process_left, kill, later, run_id_of, scratch_folders
from tests.fixtures_run import ROOT, Command
from tests.processes import outcome
from tests.run.test_train import begun, said_until, train
from tests.unit.learn import tiny

ON_A_CPU = (
    "--tasks", "builtin:1", "--prompt-option", "terse", "--allow-untimed", "--device", "cpu", "--reward", "weighted",
    "--bench-workers", "1", "--n-correctness", "2", "--timeout", "120", "--no-exclude-flagged",
    "--no-tensorboard-enabled", "--checkpoint-every", "2", "--max-tokens", "12",
)  # fmt: skip
OF_A_START = ("Timing/", "Progress/FirstSample")
"""Numbers of a batch that differ between starts, whatever is learned."""


def _judging(output: Path) -> bool:
    """A candidate's process is there."""
    run_id = run_id_of(str(output))
    folders = scratch_folders(run_id) if run_id else []
    return any(list(folder.glob("candidates/groups/*")) for folder in folders)


def _parts(output: Path) -> int:
    return len(list(output.glob("parts/part-*.parquet")))


def _checkpointing(output: Path) -> bool:
    """Files of a checkpoint are there, and what says that they are all of them is not."""
    return any(not (folder / MARK).exists() for folder in output.glob(f"{FOLDER}/step*"))


def _until(process: subprocess.Popen[str], reached: Callable[[], bool], what: str) -> None:
    """Looks often: some of this is over in hundredths of a second."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"never came to {what} (exit code {process.poll()}):\n{process.communicate()[0]}")
        time.sleep(0.002)


def _until_it_draws(process: subprocess.Popen[str], output: Path, draw: random.Random) -> None:
    later(draw, 0.8)


def _until_it_judges(process: subprocess.Popen[str], output: Path, draw: random.Random) -> None:
    _until(process, lambda: _judging(output), "judging")
    later(draw, 0.5)


def _until_it_learns(process: subprocess.Popen[str], output: Path, draw: random.Random) -> None:
    # A batch has as many tries as a part of the store, which is written as the step begins.
    before = _parts(output)
    _until(process, lambda: _parts(output) > before, "learning")
    later(draw, 0.5)


def _until_it_writes_a_checkpoint(process: subprocess.Popen[str], output: Path, draw: random.Random) -> None:
    _until(process, lambda: _checkpointing(output), "writing a checkpoint")
    later(draw, 0.03)


MOMENTS = (_until_it_draws, _until_it_judges, _until_it_learns, _until_it_writes_a_checkpoint)


def test_training_killed_whenever_and_again_goes_on_until_it_ends(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    """Three of the moments, in a drawn order, each in one of the first batches of a start."""
    batches, tasks, tries, output = 10, 2, 32, tmp_path / "run"
    given = (
        "grpo", f"model_name={tiny.make_model(tmp_path / 'model')}", f"output={output}", *ON_A_CPU,
        "--batch-size", str(tasks), "--group-size", str(tries), "--steps", str(batches),
        "--learning-rate", "0.001", "--updates", "2", "--max-staleness", "2",
    )  # fmt: skip
    for wait in draw.sample(MOMENTS, 3):
        with begun(command, *given) as process:
            lines = said_until(process, "tasks:")
            for _ in range(draw.randint(0, 2)):
                lines += said_until(process, "batch ")
            wait(process, output, draw)
            kill(process.pid)
            lines += [process.communicate()[0]]
        assert process.returncode == -signal.SIGKILL, f"it was over before it was killed:\n{''.join(lines)}"
        print(f"killed: {wait.__name__}\n{''.join(lines)}")
    code, out = train(command, *given)
    assert code == 0, out
    _check_whole(output, batches, tasks, tries)
    check_no_process_left(str(output))


def test_training_that_is_killed_learns_the_same_when_it_goes_on(command: Command, tmp_path: Path) -> None:
    """Killed after the first batch that no checkpoint holds."""
    given = (
        "grpo", f"model_name={tiny.make_model(tmp_path / 'model')}", *ON_A_CPU,
        "--batch-size", "2", "--group-size", "4", "--steps", "6", "--learning-rate", "0.02",
    )  # fmt: skip
    with begun(command, *given, f"output={tmp_path / 'plain'}") as undisturbed:
        with begun(command, *given, f"output={tmp_path / 'killed'}") as process:
            lines = said_until(process, "batch 3 of 6")
            kill(process.pid)
        assert process.wait() == -signal.SIGKILL, "".join(lines)
        code, out = train(command, *given, f"output={tmp_path / 'killed'}")
        assert code == 0, out
        assert "6 batches, 2 of them over" in out
        code, out = outcome(undisturbed, PATIENCE_S)
        assert code == 0, out
    plain, killed = (_learned(tmp_path / name) for name in ("plain", "killed"))
    assert len(plain) == len(killed) == 6
    assert any("Train/loss" in line for line in plain[2:]), "something is learned after the checkpoint"
    for one, other in zip(plain, killed, strict=True):
        # Some of it, as Train/mismatch, is nothing but rounding.
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)
    _check_whole(tmp_path / "killed", 6, 2, 4)


def _metrics(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def _learned(output: Path) -> list[dict[str, Any]]:
    """What is told of each batch, but for what no two starts have in common."""
    return [{name: line[name] for name in line if not name.startswith(OF_A_START)} for line in _metrics(output)]


def _check_whole(output: Path, batches: int, tasks: int, tries: int) -> None:
    """Each batch is told once, in order; of each of its tries there is one trace; the store is sound."""
    lines = _metrics(output)
    assert [line["step"] for line in lines] == list(range(batches))
    samples = Counter(episode.sample for episode in read_episodes(survey(open_store(str(output)))))
    wanted = [int(line["Progress/FirstSample"]) + number for line in lines for number in range(tries)]
    assert len(set(wanted)) == batches * tries, "no two batches share samples"
    assert {number: samples[number] for number in wanted} == dict.fromkeys(wanted, tasks)
    done = subprocess.run(
        [sys.executable, "-m", "kb_ray.verify", str(output), "--json"],
        capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["repeated"], found["superseded"], found["to_redo"]) == (0, 0, 0), done.stdout
