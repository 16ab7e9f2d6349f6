"""kill -9 of any process that a run has, at any moment: the run, started again where it was the driver, is whole."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.running import (
    KILLED,
    Run,
    check_nothing_left,
    check_sound,
    command_lines,
    kill,
    later,
    row_by_row,
    run_id_of,
    running,
    scratch_folders,
)
from tests.fixtures_run import Command, make_workload
from tests.processes import alive


def _owners(output: str) -> list[int]:
    """Processes of the actors that serve the run."""
    run_id = run_id_of(output)
    owners = [folder / "owner" for folder in scratch_folders(run_id)] if run_id else []
    return [int(owner.read_text().split()[0]) for owner in owners if owner.exists()]


def _programs(output: str, module: str) -> list[int]:
    """Judges or zygotes of the run. Candidates are forks of a zygote and have its command line: they are left out."""
    run_id = run_id_of(output)
    found = command_lines(f"from kb_ray.bench.child.{module} import main") if run_id else {}
    return [pid for pid, line in found.items() if run_id and run_id in line and pid not in _forks(output, "*")]


def _forks(output: str, role: str) -> list[int]:
    """Sandboxed processes: `candidates` or `references`."""
    run_id = run_id_of(output)
    folders = scratch_folders(run_id) if run_id else []
    return [int(record.name) for folder in folders for record in folder.glob(f"{role}/groups/*")]


VICTIMS: dict[str, Callable[[str], list[int]]] = {
    "actor": _owners,
    "judge": lambda output: _programs(output, "judge"),
    "zygote": lambda output: _programs(output, "zygote"),
    "candidate": lambda output: _forks(output, "candidates"),
    "reference": lambda output: _forks(output, "references"),
}


FORKS = ("candidate", "reference")
"""They come and go with the work; the others are there also without any."""


def _kill_one(run: Run, victim: str, output: str, draw: random.Random, model: ErraticModel) -> None:
    """Kills one at a drawn moment, mostly in the midst of verdicts; there is work enough left for others."""
    find, known = VICTIMS[victim], set[int]()
    if victim not in FORKS and draw.random() < 0.25:
        # As the pool starts, or while nothing is to be judged.
        run.wait_for(lambda: bool(find(output)), f"having a {victim}")
        later(draw, 4.0)
    else:
        if victim not in FORKS:
            model.go_on()
        run.wait_for(lambda: bool(_forks(output, "candidates")), "judging")
        later(draw, 0.3)

    def killed() -> bool:
        found = sorted(filter(alive, find(output)))
        known.update(found)
        return bool(found) and kill(draw.choice(found))

    run.wait_for(killed, f"having a {victim} that can be killed")
    model.go_on()
    # Another does its work: the run has met it, and not ended before.
    run.wait_for(lambda: bool({*filter(alive, find(output))} - known), f"having another {victim}")


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_in_the_pool_costs_no_episode_and_no_other_candidate(
    victim: str, draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 16), str(tmp_path / "out")
    with (
        served(ErraticModel(draw, at_first=8 if victim in FORKS else 0)) as model,
        running(row_by_row(workload, output, url=model.url), tmp_path / "log", command.env) as run,
    ):
        _kill_one(run, victim, output, draw, model)
        assert run.end() == 0, run.said
        said = run.said
    check_sound(output, workload, KILLED if victim == "candidate" else frozenset())
    check_nothing_left(output)
    assert "episodes:  16 finished now, 16 written" in said


def test_a_driver_killed_whenever_and_again_goes_on_when_started_once_more(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    with served(ErraticModel(draw, at_first=8)) as model:
        arguments = row_by_row(workload, output, url=model.url)
        with running(arguments, tmp_path / "first", command.env) as run:
            # From the first line of the program on, not only while there are rows.
            later(draw, 6.0)
            kill(run.process.pid)
            assert run.end() == -signal.SIGKILL, f"it ended before it was killed:\n{run.said}"
        with running(arguments, tmp_path / "second", command.env) as run:
            run.wait_for_rows(output, draw.randint(1, 3))
            later(draw, 1.0)
            kill(run.process.pid)
            assert run.end() == -signal.SIGKILL, f"it ended before it was killed:\n{run.said}"
        model.go_on()
        with running(arguments, tmp_path / "third", command.env) as third:
            assert third.end() == 0, third.said
        check_sound(output, workload)
        assert "nothing to do: all 12 episodes" in command.run(arguments)[1]
        check_nothing_left(output, killed_writers=2)
