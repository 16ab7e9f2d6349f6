"""Two drivers on one output: refused where both want all of it, side by side where each takes a shard."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from kb_ray.traces.run import read_run
from kb_ray.traces.shards import Shard
from kb_ray.traces.store import open_store
from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.running import kill, row_by_row, running
from tests.fixtures_run import ROOT, Command, check_exactly_once, make_workload


def tool(name: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", f"kb_ray.{name}", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_a_second_driver_is_refused_names_the_first_and_harms_nothing(command: Command, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 10), str(tmp_path / "out")
    with served(ErraticModel(random.Random(0), at_first=4)) as model:
        arguments = row_by_row(workload, output, url=model.url, n_correctness=2)
        with running(arguments, tmp_path / "first", command.env) as first:
            first.wait_for_rows(output, 1)
            # Stopped in its tracks it still is the one.
            first.process.send_signal(signal.SIGSTOP)
            code, out = command.run(arguments)
            first.process.send_signal(signal.SIGCONT)
            model.go_on()
            assert first.end() == 0, first.said
    run = read_run(open_store(output))
    assert run is not None
    assert code == 2, out
    told = next(line for line in out.splitlines() if line.startswith("error: "))
    writer = f"process {first.process.pid}"
    assert all(word in told for word in (run.run_id, os.uname().nodename, writer, "since 20", "--shard"))
    check_exactly_once(output, workload)
    assert tool("verify", output)[0] == 0


def test_two_shards_share_a_store_while_one_is_killed_and_goes_on(command: Command, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 14), str(tmp_path / "out")
    own = {i: [t for t in workload.task_ids if Shard.of(f"{i}/2").holds(t, 0)] for i in (1, 2)}
    assert all(len(tasks) >= 4 for tasks in own.values())
    with served(ErraticModel(random.Random(0), at_first=3)) as model:
        arguments = row_by_row(workload, output, url=model.url, n_correctness=2)
        with (
            running([*arguments, "--shard", "1/2"], tmp_path / "one", command.env) as one,
            running([*arguments, "--shard", "2/2"], tmp_path / "two", command.env) as two,
        ):
            two.wait_for_rows(output, 2)
            kill(one.process.pid)
            assert one.end() == -signal.SIGKILL, one.said
            model.go_on()
            code, out = command.run([*arguments, "--shard", "1/2"])
            assert code == 0, out
            assert f"{len(own[1])} planned, shard 1/2 of 14" in out
            assert two.end() == 0, two.said
        check_exactly_once(output, workload)
        code, out = command.run(arguments)
        assert code == 0
        assert "nothing to do: all 14 episodes" in out

    code, out = tool("verify", output, "--json")
    found = json.loads(out)
    assert (code, found["state"], found["planned"], found["episodes"]) == (0, "complete", 14, 14), out
    run = read_run(open_store(output))
    assert run is not None
    assert "shard" not in run.config
    status = json.loads(tool("status", output, "--json")[1])
    assert (status["state"], status["planned"]) == ("finished", 14)
    assert {one["shard"]: one["episodes"] for one in status["shards"]} == {"1/2": len(own[1]), "2/2": len(own[2])}
    for name in ("compact", "report"):
        code, out = tool(name, output, *(["--output", str(tmp_path / "page.html")] if name == "report" else []))
        assert code == 0, out
    assert tool("verify", output)[0] == 0


def test_an_evaluation_in_shards_is_summed_up_by_the_last(command: Command, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 4), tmp_path / "out"
    results = output / "evaluation" / "metrics.json"
    for index, said in ((1, "is done; "), (2, "written:   ")):
        arguments = [*workload.arguments(str(output)), "--shard", f"{index}/2"]
        done = subprocess.run(
            [sys.executable, "-m", "kb_ray.evaluate", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=ROOT, timeout=240, check=False, env={**os.environ, **command.env},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        assert said in done.stdout
        assert results.exists() == (index == 2)
    assert json.loads(results.read_text())["summary"]["overall"]["episodes"] == 4
