"""A whole run of SFT over a trace store: it learns, it can be stopped anywhere, and it says what it cannot use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray import checkpoints, train
from kb_ray.errors import ConfigError
from kb_ray.learn.learner import Learner
from kb_ray.learn.stepping import NotFinite, NotTaken, OutOfMemory, StepReport
from kb_ray.traces.store import LocalStore, open_store
from kb_ray.training import sft_run
from kb_ray.training.settings import SftSettings
from tests.unit.exporting.stories import store_of, story, task
from tests.unit.learn import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    names = ("relu", "exp", "log", "sin", "cos", "tanh")
    store_of(folder, *[story("wrong", "fast", of=task(name)) for name in names])
    return folder


def settings(model: Path, store: Path, output: Path, **changes: Any) -> SftSettings:
    given = {
        "model_name": str(model), "data": (str(store),), "output": str(output), "learning_rate": 1e-2, "epochs": 3,
        "lora_rank": 8, "checkpoint_every": 2, "tensorboard_enabled": False, "max_tokens": 4096,
    }  # fmt: skip
    return SftSettings.model_validate(given | changes)


def losses(output: Path) -> list[float]:
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["Train/loss"] for line in lines]


def test_it_learns_and_leaves_a_checkpoint_and_its_numbers(model: Path, data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert sft_run.run(settings(model, data, tmp_path), said.append, "cpu") == 9
    told = losses(tmp_path)
    assert len(told) == 9
    assert told[-1] < 0.8 * told[0]
    last = checkpoints.latest(open_store(str(tmp_path)))
    assert last is not None
    assert last.step == 9
    assert any(line.startswith("samples:  6") for line in said)
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["Progress/CompletionFraction"] == 1.0


@pytest.mark.parametrize("stop_at", [1, 4, 7])
def test_stopped_anywhere_it_ends_as_if_it_had_not_been(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    plain, broken = settings(model, data, tmp_path / "plain"), settings(model, data, tmp_path / "broken")
    sft_run.run(plain, print, "cpu")
    real = Learner.step

    def dies(self: Learner, *arguments: Any) -> StepReport:
        if self.steps == stop_at:
            raise KeyboardInterrupt
        return real(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "step", dies)
        with pytest.raises(KeyboardInterrupt):
            sft_run.run(broken, print, "cpu")
    assert sft_run.run(broken, print, "cpu") == 9
    assert losses(tmp_path / "broken") == pytest.approx(losses(tmp_path / "plain"), rel=1e-5)


def test_a_run_that_is_over_does_nothing_more(model: Path, data: Path, tmp_path: Path) -> None:
    chosen = settings(model, data, tmp_path)
    sft_run.run(chosen, print, "cpu")
    before = checkpoints.latest(LocalStore(str(tmp_path)))
    assert sft_run.run(chosen, print, "cpu") == 9
    assert checkpoints.latest(LocalStore(str(tmp_path))) == before


@pytest.mark.parametrize("why", [NotFinite, OutOfMemory])
def test_a_step_that_is_not_taken_ends_the_run_and_keeps_the_one_before(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: type[NotTaken]
) -> None:
    real = Learner.step

    def spoilt(self: Learner, *arguments: Any) -> StepReport:
        if self.steps == 3:
            raise why("step 4: not taken")
        return real(self, *arguments)

    monkeypatch.setattr(Learner, "step", spoilt)
    with pytest.raises(why):
        sft_run.run(settings(model, data, tmp_path, checkpoint_every=100), print, "cpu")
    assert checkpoints.steps(LocalStore(str(tmp_path))) == [3]


def test_another_run_begins_with_what_this_one_learned(model: Path, data: Path, tmp_path: Path) -> None:
    sft_run.run(settings(model, data, tmp_path / "first"), print, "cpu")
    second = settings(model, data, tmp_path / "second", start_from=str(tmp_path / "first"))
    sft_run.run(second, print, "cpu")
    assert losses(tmp_path / "second")[0] < losses(tmp_path / "first")[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": ()}, "--data"),
        ({"max_tokens": 16}, "nothing to learn from in .*6 too long"),
        ({"start_from": "/nowhere"}, "holds no adapter"),
        ({"eval_tasks": ("nonsense",)}, "nonsense"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    model: Path, data: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        sft_run.run(settings(model, data, tmp_path, **changes), print, "cpu")
    assert "\n" not in str(caught.value)


def test_a_damaged_file_of_traces_is_left_out_only_when_told(model: Path, tmp_path: Path) -> None:
    for name in ("relu", "exp"):
        store_of(tmp_path / "data", story("fast", of=task(name)))
    first, second = sorted((tmp_path / "data" / "parts").iterdir())
    first.write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"1 damaged.*--skip-corrupt"):
        sft_run.run(settings(model, tmp_path / "data", tmp_path / "run"), print, "cpu")
    said: list[str] = []
    sft_run.run(settings(model, tmp_path / "data", tmp_path / "run", skip_corrupt=True), said.append, "cpu")
    assert any(line.startswith(f"left out: parts/{first.name}") for line in said)
    assert any(line.startswith("samples:  1") for line in said)
    assert second.exists()


def test_a_run_whose_data_were_damaged_since_goes_on_without_them_and_says_so(model: Path, tmp_path: Path) -> None:
    for name in ("relu", "exp"):
        store_of(tmp_path / "data", story("fast", of=task(name)))
    sft_run.run(settings(model, tmp_path / "data", tmp_path / "run", epochs=2, batch_size=1), print, "cpu")
    min((tmp_path / "data" / "parts").iterdir()).write_bytes(b"x")
    again = settings(model, tmp_path / "data", tmp_path / "run", epochs=2, batch_size=1)
    with pytest.raises(ConfigError, match="--skip-corrupt"):
        sft_run.run(again, print, "cpu")
    said: list[str] = []
    assert sft_run.run(again.model_copy(update={"skip_corrupt": True}), said.append, "cpu") == 4
    assert [line for line in said if line.startswith("data:")] == [
        "data:     1 samples now, 2 before: the steps that are left learn from those of now"
    ]


def test_what_is_said_to_be_left_out_adds_up_to_the_episodes(model: Path, tmp_path: Path) -> None:
    told = [story("fast", of=task(name)) for name in ("relu", "exp", "log")]
    told += [story("wrong", of=task("sin")), story("odd", of=task("cos"))]
    (tmp_path / "asked").mkdir()
    store_of(tmp_path / "data", *told)
    row = {"name": "relu", "code": told[0].task.reference_code, "entry_point": "reference_impl",
           "input_shapes": {"x": {"shape": [8], "dtype": "float32"}}}  # fmt: skip
    (tmp_path / "asked" / "rows.jsonl").write_text(json.dumps(row) + "\n")
    said: list[str] = []
    kept_out = (f"file:{tmp_path / 'asked' / 'rows.jsonl'}",)
    sft_run.run(settings(model, tmp_path / "data", tmp_path / "run", eval_tasks=kept_out), said.append, "cpu")
    assert [line for line in said if line.startswith("samples:")] == [
        "samples:  2; of 5 that were read, left out: 1 of tasks kept clean, 1 without a correct kernel, "
        "1 without a correct kernel that is trusted"
    ]


def test_other_settings_do_not_go_on_with_a_run_but_another_place_does(model: Path, data: Path, tmp_path: Path) -> None:
    sft_run.run(settings(model, data, tmp_path / "run", epochs=1), print, "cpu")
    with pytest.raises(ConfigError, match="other settings"):
        sft_run.run(settings(model, data, tmp_path / "run", epochs=1, learning_rate=1e-3), print, "cpu")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert sft_run.run(settings(model, data, tmp_path / "moved", epochs=1), print, "cpu") == 3


def test_the_command_reads_flags_and_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main([]) == 2
    assert train.main(["grow"]) == 2
    assert "there are sft, best-of-n, grpo" in capsys.readouterr().err
    assert train.main(["sft", "--lora-rnk", "3"]) == 2
    assert "did you mean --lora-rank" in capsys.readouterr().err


def test_defaults_are_the_second_documents() -> None:
    plain = SftSettings()
    learner = plain.learning(10)
    assert (plain.epochs, plain.rule().batch_size, plain.samples, plain.model_name) == (
        1, 2, 1000, "Qwen/Qwen2.5-Coder-7B-Instruct",
    )  # fmt: skip
    assert (learner.lora.rank, learner.lora.alpha, learner.lora.dropout) == (16, 32, 0.05)
    assert set(learner.lora.target_modules) == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
