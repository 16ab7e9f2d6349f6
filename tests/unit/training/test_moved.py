"""A run goes on wherever its folders lie and however they are spelled; on no other model, and from no other start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kb_ray import train
from kb_ray.errors import ConfigError
from kb_ray.traces.run import RunInfo, open_run
from kb_ray.traces.store import LocalStore
from kb_ray.training import keeping, sft_run, whole_run
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.settings import SftSettings, TrainSettings
from kb_ray.training.whole_settings import WholeSettings
from tests.unit.exporting.stories import store_of, story, task
from tests.unit.learn import tiny
from tests.unit.training.test_sft_run import settings
from tests.unit.training.test_whole_run import best_of_n, step_of
from tests.unit.training.test_whole_run import settings as whole

KINDS = (SftSettings, BestOfNSettings, GrpoSettings, WholeSettings)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.make_model(tmp_path / "m")


@pytest.mark.parametrize("kind", KINDS)
def test_no_folder_counts_by_where_it_lies(kind: type[TrainSettings], tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "tree" / "m").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "tree")
    monkeypatch.setenv("HOME", str(tmp_path / "tree"))
    given = [
        {"model_name": model, "start_from": start, "output": output}
        for model, start, output in (
            ("m", "runs/sft", "runs/rl"), ("./m", "./runs/sft/", "./runs/rl"), ("~/m", "~/runs/sft", "~/runs/rl"),
            (f"{tmp_path}/tree/m", f"{tmp_path}/tree/x/../runs/sft", "s3://bucket/rl"),
            ("m", "s3://bucket/runs/sft", "elsewhere"),
        )
    ]  # fmt: skip
    (one,) = {kind(**each).fingerprint() for each in given}
    shutil.move(tmp_path / "tree", tmp_path / "renamed")
    monkeypatch.chdir(tmp_path / "renamed")
    assert kind(**given[0]).fingerprint() == one
    others = [{"start_from": None}, {"start_from": "runs/other"}, {"start_from": "runs/sft/checkpoints/step000012"},
              {"start_from": "runs/sft/checkpoints/step000013"}, {"model_name": "org/m"}]  # fmt: skip
    assert len({one, *(kind(**given[0] | other).fingerprint() for other in others)}) == 6
    steps = {kind(start_from=f"runs/sft/checkpoints/step000012{end}").fingerprint() for end in ("", "/", "/adapter")}
    assert len(steps) == 1


def test_a_store_of_traces_takes_the_moved_run_and_refuses_other_settings(tmp_path: Path, model: Path) -> None:
    def info(settings: GrpoSettings) -> RunInfo:
        return RunInfo(
            run_id="r", fingerprint=settings.fingerprint(), identity=settings.identity(), config={}, versions={},
            created_at="now",
        )  # fmt: skip

    store = LocalStore(str(tmp_path / "store"))
    first = open_run(store, info(GrpoSettings(model_name=str(model))))
    moved = Path(shutil.move(model, tmp_path / "moved"))
    assert open_run(store, info(GrpoSettings(model_name=str(moved)))) == first
    with pytest.raises(ConfigError, match="other settings"):
        open_run(store, info(GrpoSettings(model_name=str(moved), learning_rate=1e-6)))


def test_a_run_of_sft_goes_on_after_its_tree_was_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, data = tmp_path / "tree", tmp_path / "data"
    store_of(data, *[story("wrong", "fast", of=task(name)) for name in ("relu", "exp", "log", "sin", "cos", "tanh")])
    tiny.make_model(tree / "m")
    other = tiny.make_model(tmp_path / "other", seed=1)
    monkeypatch.chdir(tree)
    first = settings(Path("m"), data, Path("first"), epochs=1)
    assert sft_run.run(first, print, "cpu") == 3
    begun = settings(Path("m"), data, Path("second"), epochs=1, start_from="first")
    assert sft_run.run(begun, print, "cpu") == 3
    tree = tree.rename(tmp_path / "renamed")
    monkeypatch.chdir(tmp_path)
    (tree / "m").rename(tmp_path / "base")
    again = {"epochs": 1, "start_from": str(tree / "first")}
    assert sft_run.run(settings(tmp_path / "base", data, tree / "second", **again), print, "cpu") == 3
    with pytest.raises(ConfigError, match=f"trained on .*/m, not on {other}"):
        sft_run.run(settings(other, data, tree / "second", **again), print, "cpu")
    with pytest.raises(ConfigError, match="other settings"):
        sft_run.run(settings(tmp_path / "base", data, tree / "second", epochs=1), print, "cpu")


async def test_both_stages_go_on_after_their_output_was_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = await whole_run.run(whole(tmp_path), best_of_n, print, "cpu")
    (tmp_path / "run").rename(tmp_path / "renamed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sft_run, "run", None)
    again = whole(tmp_path, output="./renamed", model_name="model", steps=4)
    assert await whole_run.run(again, best_of_n, print, "cpu") >= steps
    assert step_of(tmp_path / "renamed" / "sft") == 3


async def test_a_stage_that_is_over_is_looked_at_again_where_its_model_may_be_another(tmp_path: Path) -> None:
    await whole_run.run(whole(tmp_path, stage="sft"), best_of_n, print, "cpu")
    tiny.make_model(tmp_path / "wider", hidden=48)
    with pytest.raises(ConfigError, match=r"trained on .*/model, not on .*/wider"):
        await whole_run.run(whole(tmp_path, stage="sft", model_name=str(tmp_path / "wider")), best_of_n, print, "cpu")


def test_the_place_of_a_model_is_kept_in_full(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learning = SftSettings(model_name="m", lora_rank=8).learning(None)
    assert learning.model == str(model)
    learner = tiny.learner(Path(learning.model))
    store = LocalStore(str(tmp_path / "run"))
    assert keeping.save(store, learner, "f", {}).base_model == str(model)
    assert json.loads(learner.adapter()["adapter_config.json"])["base_model_name_or_path"] == str(model)
    assert SftSettings(model_name="org/m").learning(None).model == "org/m"
    assert SftSettings(model_name="m", learner="tinker").learning(None).model == "m"


@pytest.mark.parametrize("name", ["model_name", "output", "start_from"])
def test_the_home_of_nobody_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValidationError, match="no home folder ~nobody-here"):
        SftSettings(**{name: "~nobody-here/x"})
    assert train.main(["sft", f"--{name.replace('_', '-')}", "~nobody-here/x"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "there is no home folder ~nobody-here: name the folder in full" in err
