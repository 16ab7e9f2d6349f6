"""Drivers started on one output at nearly the same moment: one writes, the other is told who does."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.running import Run, check_nothing_left, check_sound, kill, later, run_id_of, running
from tests.fixtures_run import Command, make_workload


def one_refused(one: Run, two: Run) -> tuple[Run, str]:
    """(who goes on, what the other was told); the other has ended, and was told who."""
    ends = (one.process, two.process)
    one.wait_for(lambda: any(end.poll() is not None for end in ends), "the end of either")
    refused, writer = (one, two) if one.process.poll() is not None else (two, one)
    assert refused.end() == 2, refused.said
    told = next(line for line in refused.said.splitlines() if line.startswith("error: "))
    assert f"process {writer.process.pid}" in told
    return writer, told


def test_of_two_that_start_together_one_is_refused_and_a_third_goes_on_when_the_other_is_killed(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    arguments = workload.arguments(output, "--save-interval", "1", "--batch-size", "2", n_correctness=20)
    with running(arguments, tmp_path / "one", command.env) as one:
        later(draw, 1.0)
        with running(arguments, tmp_path / "two", command.env) as two:
            writer, told = one_refused(one, two)
            assert str(run_id_of(output)) in told
            writer.wait_for_rows(output, draw.randint(1, 4))
            later(draw, 2.0)
            kill(writer.process.pid)
            writer.end()
    with running(arguments, tmp_path / "three", command.env) as three:
        assert three.end() == 0, three.said
    check_sound(output, workload)
    check_nothing_left(output)


def test_of_the_whole_run_and_a_shard_that_start_together_exactly_one_goes_on(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 8), str(tmp_path / "out")
    arguments = workload.arguments(output, "--save-interval", "1", "--batch-size", "2", n_correctness=20)
    with running(arguments, tmp_path / "whole", command.env) as whole:
        later(draw, 0.3)
        with running([*arguments, "--shard", "1/2"], tmp_path / "shard", command.env) as shard:
            writer, _ = one_refused(whole, shard)
            assert writer.end() == 0, writer.said
    with running(arguments, tmp_path / "rest", command.env) as rest:
        assert rest.end() == 0, rest.said
    check_sound(output, workload)
    check_nothing_left(output)
