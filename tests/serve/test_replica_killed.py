"""A replica of the served model dies in mid-answer: the run waits for the next one, and no answer is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from kb_ray.records import Status
from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from kb_ray.verifying.checking import check
from tests.chaos.running import check_nothing_left, command_lines, later, running
from tests.fixtures_run import Command, make_workload
from tests.processes import alive, cpu_s, descendants

MODEL = "smollm2-135m-instruct"
EPISODES = 6


def replicas() -> list[int]:
    """Processes of Serve that answer for the model, below this one's Ray."""
    return [pid for pid, line in command_lines("ray::ServeReplica").items() if "LLMServer" in line]


def answering(processes: set[int]) -> bool:
    """Whether they compute: between answers a model waits."""
    before = cpu_s(processes)
    time.sleep(0.3)
    return cpu_s(processes) - before > 0.15


def test_a_replica_that_is_killed_in_mid_answer_costs_time_and_no_episode(
    draw: random.Random, smollm2_url: str, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, EPISODES), str(tmp_path / "out")
    arguments = [
        "--tasks", f"folder:{workload.tasks}", "--model", MODEL, "--vllm-url", smollm2_url, "--prompt", "terse",
        "--max-tokens", "200", "--seed", "3", "--bench-workers", "1", "--n-correctness", "1", "--batch-size", "2",
        "--save-interval", "1", "--output", output,
    ]  # fmt: skip
    with running(arguments, tmp_path / "log", command.env) as run:
        found = replicas()
        assert found, command_lines("ray::ServeReplica")
        processes = {pid for replica in found for pid in (replica, *descendants(replica))}
        run.wait_for(lambda: answering(processes), "an answer under way")
        later(draw, 1.0)
        run.wait_for(lambda: answering(processes), "an answer under way")
        for replica in found:
            os.kill(replica, signal.SIGKILL)
        assert run.process.poll() is None, "it was over before the replica was killed"
        assert run.end() == 0, run.said
    kept = list(episodes(open_store(output)))
    assert sorted(episode.task.task_id for episode in kept) == sorted(workload.task_ids)
    for episode in kept:
        assert [turn.completion.model for turn in episode.turns] == [MODEL]
        assert episode.turns[0].completion.text
        assert episode.turns[0].verdict.status is not Status.INFRA_ERROR
    found = check(open_store(output))
    assert (found.sound, found.state, found.repeated) == (True, "complete", 0), found
    check_nothing_left(output)
    deadline = time.monotonic() + 300
    while left := [pid for pid in processes if alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
    assert replicas(), "another one answers now"
