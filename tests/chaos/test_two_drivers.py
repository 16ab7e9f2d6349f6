"""Drivers started on one output at nearly the same moment: one writes, the other is told who does."""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kb_ray.bench.sweep import claim, remove
from kb_ray.traces.lease import TERM_S
from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.machine import own_processes
from tests.chaos.running import Run, check_nothing_left, check_sound, kill, later, row_by_row, run_id_of, running
from tests.fixtures_chaos import ONLY_IN_CHAOS
from tests.fixtures_run import Command, make_workload
from tests.fixtures_s3 import S3Server


def one_refused(one: Run, two: Run) -> tuple[Run, str]:
    """(who goes on, what the other was told); the other has ended, and was told who."""
    ends = (one.process, two.process)
    one.wait_for(lambda: any(end.poll() is not None for end in ends), "the end of either")
    refused, writer = (one, two) if one.process.poll() is not None else (two, one)
    assert refused.end() == 2, refused.said
    told = next(line for line in refused.said.splitlines() if line.startswith("error: "))
    assert f"process {writer.process.pid}" in told
    return writer, told


@pytest.fixture
def output(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A new one, of the kind that is asked for."""
    if request.param == "folder":
        return str(tmp_path / "out")
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return f"s3://{server.bucket}/{uuid.uuid4().hex}"


def until_let_in(start: Callable[[], AbstractContextManager[Run]], holder: str) -> str:
    """What the start said that was let in. One that finds the lease still moving is told who holds it and begun again,
    as a user would: the holder's last renewal may have landed after its end. No more than one term can pass so."""
    deadline = time.monotonic() + 2 * TERM_S
    while True:
        with start() as run:
            code, said = run.end(), run.said
        if code == 0:
            return said
        assert code == 2, said
        assert holder in said
        assert time.monotonic() < deadline, said


@pytest.mark.parametrize(
    ("output", "elsewhere"),
    [
        pytest.param("folder", False, id="folder"),
        pytest.param("s3", False, id="s3", marks=ONLY_IN_CHAOS),
        pytest.param("s3", True, id="s3 and another machine", marks=ONLY_IN_CHAOS),
    ],
    indirect=["output"],
)
def test_of_two_that_start_together_one_is_refused_and_a_third_goes_on_when_the_other_is_killed(
    output: str, elsewhere: bool, draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload = make_workload(tmp_path, 12)
    with served(ErraticModel(draw, at_first=6)) as model:
        arguments = row_by_row(workload, output, url=model.url)
        with running(arguments, tmp_path / "one", command.env) as one:
            later(draw, 1.0)
            with running(arguments, tmp_path / "two", command.env) as two:
                writer, told = one_refused(one, two)
                assert str(run_id_of(output)) in told
                writer.wait_for_rows(output, draw.randint(1, 4))
                later(draw, 2.0)
                kill(writer.process.pid)
                assert writer.end() == -signal.SIGKILL, f"it ended before it was killed:\n{writer.said}"
        model.go_on()
        holder = f"process {writer.process.pid}"
        if elsewhere:
            # From there nobody sees that the writer is dead: its lease has to end.
            machine, own_ray = own_processes(), {"RAY_ADDRESS": "local"}
            said = until_let_in(lambda: running(arguments, tmp_path / "three", own_ray, machine), holder)
            assert "is taken over unless that start shows a sign of life" in said
            # What the writer's bench worker left here goes when the next one comes.
            remove(claim("next"))
        else:
            with running(arguments, tmp_path / "three", command.env) as three:
                assert three.end() == 0, three.said
    check_sound(output, workload)
    check_nothing_left(output, killed_writers=1)


def test_of_the_whole_run_and_a_shard_that_start_together_exactly_one_goes_on(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 8), str(tmp_path / "out")
    arguments = row_by_row(workload, output)
    with running(arguments, tmp_path / "whole", command.env) as whole:
        later(draw, 0.3)
        with running([*arguments, "--shard", "1/2"], tmp_path / "shard", command.env) as shard:
            writer, _ = one_refused(whole, shard)
            assert writer.end() == 0, writer.said
    with running(arguments, tmp_path / "rest", command.env) as rest:
        assert rest.end() == 0, rest.said
    check_sound(output, workload)
    check_nothing_left(output)
