"""`kb_ray.serve CHECKPOINT`: what it is told from, the config that it becomes, and what is refused before a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kb_ray import local_checkpoints, serve, serve_checkpoint
from kb_ray.errors import ConfigError
from kb_ray.serve_file import check
from kb_ray.traces.store import LocalStore
from tests.unit.deployments.adapter_folders import make_base, make_run

pytestmark = pytest.mark.usefixtures("no_engine_asked")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What vLLM is built for is the test's to say: set `serve_checkpoint.vllm_device`."""
    monkeypatch.setattr(serve_checkpoint, "vllm_device", lambda: "gpu")
    return monkeypatch


def model_of(config: dict[str, Any]) -> dict[str, Any]:
    check(config)
    model: dict[str, Any] = config["applications"][0]["args"]["models"][0]
    return model


def test_a_run_is_one_model_named_after_its_latest_checkpoint(tmp_path: Path, device: pytest.MonkeyPatch) -> None:
    base = make_base(tmp_path / "base")
    run = make_run(tmp_path / "my run", base)
    make_run(tmp_path / "my run", base, step=9)
    config = serve_checkpoint.config_of(run)
    adapter = f"{run}/checkpoints/step000210/adapter"
    model = model_of(config)
    # Longer than Serve's own 20 s, in which no long answer is finished.
    assert model.pop("deployment") == {"max_ongoing_requests": 256, "graceful_shutdown_timeout_s": 900}
    assert model.pop("engine") == {"max_num_seqs": 256}, "what it let in waits for nothing"
    assert model == {"model_id": "my-run-step000210", "source": base, "adapter": adapter}
    assert serve_checkpoint.described(config) == f"model my-run-step000210: {adapter} over {base}"
    early = serve_checkpoint.config_of(f"{run}/checkpoints/step000009")
    assert model_of(early)["model_id"] == "my-run-step000009"


def test_where_vllm_is_for_cpus_it_is_served_as_the_small_model_is(tmp_path: Path, device: pytest.MonkeyPatch) -> None:
    device.setattr(serve_checkpoint, "vllm_device", lambda: "cpu")
    for name, window, served in (("short", 512, 512), ("long", 131072, 4096)):
        base = make_base(tmp_path / name, max_position_embeddings=window)
        found = model_of(serve_checkpoint.config_of(make_run(tmp_path / f"of-{name}", base)))
        assert (found["device"], found["model_id"]) == ("cpu", f"of-{name}-step000210")
        assert (found["engine"]["max_model_len"], found["engine"]["max_num_batched_tokens"]) == (served, served)
        assert (found["source"], found.get("source_env")) == (base, None)


def test_the_base_model_may_lie_elsewhere(tmp_path: Path, device: pytest.MonkeyPatch) -> None:
    base = make_base(tmp_path / "trained" / "base")
    run = make_run(tmp_path / "run", base)
    Path(base).rename(tmp_path / "here")
    with pytest.raises(ConfigError, match=rf"no base model of {run} in {base}: give its folder, .*--base"):
        serve_checkpoint.config_of(run)
    assert model_of(serve_checkpoint.config_of(run, str(tmp_path / "here")))["source"] == str(tmp_path / "here")
    assert model_of(serve_checkpoint.config_of(run, "Org/Model"))["source"] == "Org/Model"


def test_a_folder_named_from_where_training_was_started_is_not_looked_for_on_the_hub(
    tmp_path: Path, device: pytest.MonkeyPatch
) -> None:
    device.chdir(tmp_path)
    make_base(Path("smollm2"))
    run = make_run(tmp_path / "run", "smollm2")
    assert model_of(serve_checkpoint.config_of(run))["source"] == str(tmp_path / "smollm2")
    (tmp_path / "elsewhere").mkdir()
    device.chdir(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"no base model of .* in smollm2: "):
        serve_checkpoint.config_of(run)
    on_hub = make_run(tmp_path / "hub", "Org/Model")
    assert model_of(serve_checkpoint.config_of(on_hub))["source"] == "Org/Model"


def test_of_s3_replicas_learn_where_it_is_and_no_secret(tmp_path: Path, device: pytest.MonkeyPatch) -> None:
    base = make_base(tmp_path / "base")
    device.setattr(local_checkpoints, "open_store", lambda uri: Bucket(str(tmp_path / "s3"), uri))
    for name, value in {
        "XDG_CACHE_HOME": str(tmp_path), "AWS_ENDPOINT_URL": "http://h:1", "AWS_SECRET_ACCESS_KEY": "x",
    }.items():  # fmt: skip
        device.setenv(name, value)
    make_run(tmp_path / "s3", base)
    config = serve_checkpoint.config_of("s3://bucket/lab/run")
    assert model_of(config)["model_id"] == "run-step000210"
    assert model_of(config)["adapter"] == "s3://bucket/lab/run/checkpoints/step000210/adapter"
    given = config["applications"][0]["runtime_env"]["env_vars"]
    assert given["AWS_ENDPOINT_URL"] == "http://h:1"
    assert not any("SECRET" in name for name in given)
    assert "runtime_env" not in serve_checkpoint.config_of(str(tmp_path / "s3"))["applications"][0]


class Bucket(LocalStore):
    """A folder that passes for a place on S3."""

    def __init__(self, path: str, uri: str) -> None:
        super().__init__(path)
        self.uri = uri


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "--check"], None),
        (["{empty}"], "error: there is no adapter in {empty}: name a training run's output"),
        (["smollm2_cpu", "--base", "x"], "error: --base is of a checkpoint, and smollm2_cpu is a deployment"),
        (["{empty}/nowhere"], "error: no deployment {empty}/nowhere: pass a YAML file, a checkpoint, or one of: "),
        (["http://h/run"], "error: http://h/run cannot be read: name a training run's output"),
    ],
)
def test_the_command_says_what_it_cannot_use_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str | None
) -> None:
    names = {"run": make_run(tmp_path / "run", make_base(tmp_path / "base")), "empty": str(tmp_path / "empty")}
    (tmp_path / "empty").mkdir()
    code = serve.main([argument.format(**names) for argument in arguments])
    out, err = capsys.readouterr()
    if said is None:
        assert (code, err) == (0, "")
        assert out.splitlines()[0].startswith("model run-step000210: ")
        return
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith(said.format(**names))


def test_a_deployments_name_is_not_taken_for_a_folder_that_is_called_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glm45_air").mkdir()
    (tmp_path / "mine").mkdir()
    meant = {name: serve_checkpoint.is_meant(name) for name in ("glm45_air", "mine", "s3://b/run", "nowhere", "bench")}
    assert meant == {"glm45_air": False, "mine": True, "s3://b/run": True, "nowhere": False, "bench": False}
