"""A model server that does everything wrong that a server can: the run waits, tries again, and ends whole."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from tests.chaos.erratic_model import FAULTS, ErraticModel, served
from tests.chaos.running import check_nothing_left, check_sound, later, running
from tests.fixtures_run import Command, Workload, make_workload


def _arguments(workload: Workload, output: str, model: ErraticModel) -> Sequence[str]:
    return [
        "--tasks", f"folder:{workload.tasks}", "--vllm-url", model.url, "--multi-turn", "--max-turns", "16",
        "--output", output, "--n-correctness", "2", "--bench-workers", "1", "--save-interval", "1",
        "--batch-size", "12", "--answer-timeout", "10",
    ]  # fmt: skip


def test_storms_resets_hangs_and_nonsense_cost_time_and_no_episode(
    draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 8), str(tmp_path / "out")
    storm, each = ["429"] * draw.randint(4, 20), draw.sample(sorted(FAULTS), len(FAULTS))
    model = ErraticModel(draw, deck=storm + each, share=0.2)
    with served(model), running(list(_arguments(workload, output, model)), tmp_path / "log", command.env) as run:
        assert run.end() == 0, run.said
    assert set(model.faults) == set(FAULTS)
    check_sound(output, workload)
    check_nothing_left(output)


@pytest.mark.parametrize("strict", [True, False], ids=["looks at the name", "answers any"])
def test_a_server_that_comes_back_with_another_model_gives_no_answer_under_the_old_ones_name(
    strict: bool, draw: random.Random, command: Command, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    with served(ErraticModel(draw, at_first=6)) as model:
        model.looks_at_names = strict
        arguments = list(_arguments(workload, output, model))
        with running(arguments, tmp_path / "log", command.env) as run:
            run.wait_for(lambda: model.chats >= 3, "asking the model")
            later(draw, 1.0)
            model.name = "other-model"
            asked = model.chats
            model.go_on()
            # What was answered by then is kept; the rest is not done, and the run says so.
            assert run.end() in (0, 1), run.said
        under_old_name = sum(len(episode.turns) for episode in episodes(open_store(output)))
        assert under_old_name <= asked, "what the other model answered was taken for this one's"
        with running(arguments, tmp_path / "refused", command.env) as refused:
            code = refused.end()
        assert model.refused
        assert code == 2, refused.said
        assert '"tiny-model" -> "other-model"' in refused.said
        model.name = "tiny-model"
        with running(arguments, tmp_path / "again", command.env) as again:
            assert again.end() == 0, again.said
    check_sound(output, workload)
    check_nothing_left(output)
