"""Training as a command: real Ray, the real verifier on a CPU, a model of a few thousand weights."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kb_ray import checkpoints
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.store import open_store
from tests.fixtures_run import ROOT, Command
from tests.processes import outcome
from tests.unit.learn import tiny
from tests.unit.training.test_learning_pairs import HAND


def begun(command: Command, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kb_ray.train", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env={**os.environ, **command.env, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def train(command: Command, *arguments: str) -> tuple[int, str]:
    return outcome(begun(command, *arguments), 300)


def said_until(process: subprocess.Popen[str], start: str) -> list[str]:
    """The lines up to one that begins so."""
    assert process.stdout is not None
    lines = []
    for line in iter(process.stdout.readline, ""):
        lines.append(line)
        if line.startswith(start):
            break
    return lines


def test_grpo_tries_judges_learns_and_keeps_all_of_it(command: Command, tmp_path: Path) -> None:
    model, output = tiny.make_model(tmp_path / "model"), tmp_path / "run"
    arguments = [
        "grpo", f"model_name={model}", f"output={output}", "--tasks", "builtin:1", "--steps", "2", "--batch-size", "2",
        "--group-size", "3", "--mode", "multi_turn", "--max-turns", "2", "--max-tokens", "8",
        "--prompt-option", "terse", "--allow-untimed", "--reward", "weighted", "--bench-workers", "1",
        "--bench-concurrency", "2",
        "--n-correctness", "2", "--timeout", "20", "--no-exclude-flagged",
    ]  # fmt: skip
    code, out = train(command, *arguments)
    assert code == 0, out
    assert "batch 2 of 2: reward" in out
    episodes = list(read_episodes(survey(open_store(str(output)))))
    assert len(episodes) == 2 * 2 * 3
    assert {len(episode.turns) for episode in episodes} == {2}
    assert all(turn.completion.token_ids for episode in episodes for turn in episode.turns)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]
    assert "KernelQuality/FormatRate" in lines[0]
    assert checkpoints.latest(open_store(str(output))) is not None
    assert checkpoints.adapter_folder(output).joinpath("adapter_model.safetensors").is_file()


def test_a_run_that_is_told_to_stop_lets_go_of_its_output_and_goes_on(command: Command, tmp_path: Path) -> None:
    model, output = tiny.make_model(tmp_path / "model"), tmp_path / "run"
    given = [
        "grpo", f"model_name={model}", f"output={output}", "--tasks", "builtin:1", "--batch-size", "1", "--group-size",
        "2", "--max-tokens", "8", "--checkpoint-every", "1", "--prompt-option", "terse", "--allow-untimed", "--steps",
        "1000", "--bench-workers", "1", "--n-correctness", "2", "--no-exclude-flagged", "--no-tensorboard-enabled",
    ]  # fmt: skip
    over = [0]
    for number in (signal.SIGTERM, signal.SIGINT):
        with begun(command, *given) as process:
            lines = said_until(process, "batch ")
            over += [int(found) for found in re.findall(r"batches, (\d+) of them over", "".join(lines))]
            process.send_signal(number)
            said, _ = process.communicate(timeout=120)
        assert process.returncode == 128 + number, said
        assert said.splitlines()[-1].startswith("stopped: "), said
        assert "logging.cc" not in said
        assert all(json.loads(path.read_text())["released"] for path in (output / "leases").glob("*.json"))
    assert len(over) == 3
    assert over[0] == over[1] == 0 < over[2]


def test_sft_in_two_processes_learns_pairs_and_goes_on(command: Command, tmp_path: Path) -> None:
    model, data = tiny.make_model(tmp_path / "model"), tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(HAND) + "\n" for _ in range(4)))
    given = [f"model_name={model}", f"data=file:{data}", "learning_rate=0.01", "lora_dropout=0", "batch_size=4"]
    told = []
    for name, workers in (("one", 1), ("two", 2)):
        code, out = train(command, "sft", *given, f"output={tmp_path / name}", "--epochs", "3",
                          "--train-workers", str(workers), "--no-tensorboard-enabled")  # fmt: skip
        assert code == 0, out
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        told.append([json.loads(line)["Train/loss"] for line in lines])
    assert len(told[1]) == 3
    assert told[1] == pytest.approx(told[0], rel=1e-3)
    # A run may go on in another number of processes: what is learned is the same.
    code, out = train(command, "sft", *given, f"output={tmp_path / 'two'}", "--epochs", "3", "--no-tensorboard-enabled")
    assert code == 0, out
    assert "3 of them taken already" in out


def test_verdicts_of_a_cpu_are_no_rewards_unless_they_are_wanted(command: Command, tmp_path: Path) -> None:
    model = tiny.make_model(tmp_path / "model")
    code, out = train(command, "grpo", f"model_name={model}", f"output={tmp_path / 'run'}", "--tasks", "builtin:1")
    assert code == 2, out
    assert "no rewards" in out.splitlines()[-1]
