"""A run begins with the adapter that is named: a run's last, that of a checkpoint, a plain one, here or on S3."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kb_ray import checkpoints
from kb_ray.errors import ConfigError, StoreError
from kb_ray.learn.learner import Learner
from kb_ray.traces.store import LocalStore
from kb_ray.training import keeping, origins
from kb_ray.training.settings import SftSettings
from kb_ray.training.starting import shaped
from tests.unit.learn import tiny
from tests.unit.learn.test_learner import SAMPLES, SFT, weights

RUN = "s3://bucket/lab/run"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


class Bucket(LocalStore):
    """A prefix of S3, in which something may happen before a key is read."""

    before_get: Callable[[str], None] | None = None

    def get(self, key: str) -> bytes | None:
        if self.before_get is not None:
            self.before_get(key)
        return super().get(key)


@pytest.fixture
def run(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Bucket, dict[int, torch.Tensor]]:
    """The store of a run at RUN with checkpoints of steps 1 and 2, and the weights of each; beside it a plain adapter,
    of step 2."""
    store, learner, taught = Bucket(str(tmp_path / "lab" / "run")), tiny.learner(model), {}
    for step in (1, 2):
        learner.step(SAMPLES, SFT)
        keeping.save(store, learner, "f", {})
        taught[step] = weights(learner).clone()
    shutil.copytree(tmp_path / "lab/run/checkpoints/step000002/adapter", tmp_path / "lab/plain")

    def open_store(uri: str) -> LocalStore:
        return store if uri in (RUN, store.uri) else Bucket(uri.replace("s3://bucket", str(tmp_path)))

    monkeypatch.setattr(origins, "open_store", open_store)
    return store, taught


def begun(model: Path, path: str) -> Learner:
    shaped(SftSettings(model_name=str(model), start_from=path))
    learner = tiny.learner(model, seed=8)
    keeping.start_from(learner, path)
    return learner


@pytest.mark.parametrize("root", ["s3://bucket/lab", "{here}/lab"])
@pytest.mark.parametrize(
    ("below", "step"),
    [
        ("run", 2), ("run/", 2), ("run/checkpoints/step000001", 1), ("run/checkpoints/step000001/", 1),
        ("run/checkpoints/step000001/adapter", 1), ("plain", 2),
    ],
)  # fmt: skip
def test_each_name_of_an_adapter_is_understood(
    run: tuple[Bucket, dict[int, torch.Tensor]], model: Path, tmp_path: Path, root: str, below: str, step: int
) -> None:
    path = f"{root.format(here=tmp_path)}/{below}"
    assert torch.equal(weights(begun(model, path)), run[1][step])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{RUN}/checkpoints/step000007", f"--start-from: {RUN} has no checkpoint of step 7: it has 1, 2"),
        ("s3://bucket/lab/nothing", r"nothing holds no adapter: give a run's output, .* or on s3://BUCKET/PREFIX"),
        ("s3://bucket/lab/nothing/checkpoints/step000001", "holds no adapter"),
        ("~nobody-here/x", "holds no adapter"),
    ],
)
def test_what_is_not_there_is_one_line(
    run: tuple[Bucket, dict[int, torch.Tensor]], model: Path, path: str, message: str
) -> None:
    for begin in (
        lambda: shaped(SftSettings(model_name=str(model)).model_copy(update={"start_from": path})),
        lambda: keeping.start_from(tiny.learner(model), path),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            begin()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", ["checkpoint.json", "adapter_config.json", "adapter_model.safetensors"])
def test_of_a_run_that_goes_on_meanwhile_the_later_one_is_taken(
    run: tuple[Bucket, dict[int, torch.Tensor]], model: Path, tmp_path: Path, read: str
) -> None:
    store, _ = run
    learner = tiny.learner(model)
    learner.steps = 2

    def goes_on(key: str) -> None:
        if key == f"checkpoints/step000002/{'' if read == 'checkpoint.json' else 'adapter/'}{read}":
            store.before_get = None
            learner.step(SAMPLES, SFT)
            keeping.save(store, learner, "f", {}, keep=1)

    for begin in (
        lambda: shaped(SftSettings(model_name=str(model), start_from=RUN)),
        lambda: keeping.start_from(tiny.learner(model, seed=8), RUN),
    ):
        store.before_get = goes_on
        begin()
    assert checkpoints.steps(store) == [3]


@pytest.mark.parametrize("path", [RUN, f"{RUN}/checkpoints/step000002"])
def test_damage_is_told_and_nothing_else_taken(
    run: tuple[Bucket, dict[int, torch.Tensor]], model: Path, path: str
) -> None:
    store, _ = run
    store.replace("checkpoints/step000002/adapter/adapter_model.safetensors", b"damaged")
    with pytest.raises(StoreError, match=r"step000002/adapter/adapter_model\.safetensors is damaged"):
        keeping.start_from(tiny.learner(model), path)


def test_a_plain_adapter_on_s3_is_refused_for_another_model(
    run: tuple[Bucket, dict[int, torch.Tensor]], model: Path, tmp_path: Path
) -> None:
    config = json.loads((tmp_path / "lab/plain/adapter_config.json").read_text())
    (tmp_path / "lab/plain/adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "org/x"}))
    with pytest.raises(ConfigError, match="is for org/x, not for org/y"):
        shaped(SftSettings(model_name="org/y", start_from="s3://bucket/lab/plain"))
