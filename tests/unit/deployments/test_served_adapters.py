"""What is served of a run under way lasts: it is copied to where nothing is removed, and replicas start from that."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from deployments import app
from kb_ray import checkpoints, local_checkpoints, serve_checkpoint
from kb_ray.errors import ConfigError
from kb_ray.traces.store import LocalStore, Store, StoreUnavailable
from tests.unit.deployments.adapter_folders import make_base, make_run

URL = "s3://bucket/lab/run"


class Bucket(LocalStore):
    """A folder that passes for a place on S3."""

    def __init__(self, path: str, uri: str) -> None:
        super().__init__(path)
        self.uri = uri


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which s3://bucket lies."""
    folder = tmp_path / "s3"

    def store(uri: str) -> Store:
        scheme, separator, key = uri.partition("s3://bucket")
        return Bucket(f"{folder}{key}", uri) if separator else LocalStore(scheme)

    for module in ("kb_ray.local_checkpoints", "deployments.served_adapters"):
        monkeypatch.setattr(f"{module}.open_store", store)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def served(base: str, adapter: str) -> str:
    """Where replicas look for the adapter."""
    args = {"models": [{"model_id": "m", "source": base, "adapter": adapter}]}
    (found,) = app.serving_args(app.parse(args))["llm_configs"]
    place: str = found["experimental_configs"]["adapter"]
    return place


def replica(place: str) -> bytes:
    """The weights that a replica has which starts now, as deployments.adapter_server looks for them."""
    folder = local_checkpoints.here(place)
    assert local_checkpoints.check(folder, None) is not None
    return (folder / "adapter_model.safetensors").read_bytes()


def go_on(run: Path, base: str) -> None:
    """Training takes two further steps, and keeps those alone."""
    for step in (211, 212):
        make_run(run, base, step)
    checkpoints.prune(LocalStore(str(run)), 2)
    assert checkpoints.steps(LocalStore(str(run))) == [211, 212]


@pytest.mark.parametrize("name", ["", "/checkpoints/step000210", "/checkpoints/step000210/adapter/"])
def test_a_replica_starts_after_the_run_has_removed_what_is_served(tmp_path: Path, name: str) -> None:
    base = make_base(tmp_path / "base")
    run = make_run(tmp_path / "run", base)
    place = served(base, run + name)
    go_on(tmp_path / "run", base)
    assert replica(place) == b"weights"
    assert local_checkpoints.name_of(Path(place)) == "run-step000210"
    assert served(base, place) == place, "a copy is not copied again"
    again = serve_checkpoint.config_of(place)["applications"][0]["args"]["models"][0]
    assert (again["model_id"], again["adapter"]) == ("run-step000210", place)


@pytest.mark.parametrize("cache", ["kept", "lost"])
@pytest.mark.parametrize("name", ["", "/checkpoints/step000210"])
def test_of_s3_a_replica_starts_on_any_node_after_that(tmp_path: Path, bucket: Path, name: str, cache: str) -> None:
    base, run = make_base(tmp_path / "base"), bucket / "lab" / "run"
    make_run(run, base)
    place = served(base, URL + name)
    assert place.startswith(f"{URL}/served/")
    assert place.endswith("/run/checkpoints/step000210/adapter")
    go_on(run, base)
    if cache == "lost":
        shutil.rmtree(tmp_path / "cache")
    assert replica(place) == b"weights"
    assert served(base, place) == place


def test_the_optimizer_is_not_copied_and_the_run_finds_no_checkpoint_more(tmp_path: Path) -> None:
    base, run = make_base(tmp_path / "base"), tmp_path / "run"
    files = {"adapter/adapter_config.json": b'{"peft_type": "LORA", "r": 8}', "adapter/w": b"w", "state.pt": b"state"}
    told = checkpoints.Checkpoint(step=1, base_model=base, base_hash=checkpoints.base_hash(base), fingerprint="f")
    checkpoints.save(LocalStore(str(run)), told, files)
    copy = Path(served(base, str(run))).parent
    assert sorted(str(file.relative_to(copy)) for file in copy.rglob("*") if file.is_file()) == [
        "adapter/adapter_config.json", "adapter/w", "checkpoint.json",
    ]  # fmt: skip
    assert checkpoints.steps(LocalStore(str(run))) == [1]


def test_other_weights_of_the_same_step_take_nothing_from_what_is_served(tmp_path: Path) -> None:
    base, run = make_base(tmp_path / "base"), tmp_path / "run"
    first = served(base, make_run(run, base, r=8))
    shutil.rmtree(run / "checkpoints")
    second = served(base, make_run(run, base, r=16))
    assert first != second
    assert [checkpoints.check_adapter(Path(place)) is not None for place in (first, second)] == [True, True]


def test_a_copy_that_is_not_whole_is_made_again(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    run = make_run(tmp_path / "run", base)
    place = Path(served(base, run))
    for damage in (
        lambda: (place / "adapter_model.safetensors").write_bytes(b"cut"),
        lambda: (place / "adapter_config.json").unlink(),
        lambda: (place.parent / "checkpoint.json").unlink(),
    ):
        damage()
        assert served(base, run) == str(place)
        assert replica(str(place)) == b"weights"


def test_what_no_run_removes_stays_where_it_is(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    run = Path(make_run(tmp_path / "run", base))
    plain = shutil.copytree(run / "checkpoints" / "step000210" / "adapter", tmp_path / "plain")
    copied = shutil.copytree(run / "checkpoints" / "step000210", tmp_path / "mine")
    assert served(base, str(plain)) == str(plain)
    assert served(base, str(copied)) == f"{copied}/adapter"
    assert not list(tmp_path.rglob("served"))


def test_what_is_refused_leaves_no_copy(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    with pytest.raises(ConfigError, match="which vLLM does not serve"):
        served(base, make_run(tmp_path / "run", base, use_dora=True))
    assert not list(tmp_path.rglob("served"))


def test_where_nothing_may_be_written_it_is_served_from_where_it_lies_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(self: LocalStore) -> None:
        raise ConfigError(f"output {self.uri}: no permission to write")

    monkeypatch.setattr(LocalStore, "check_writable", refused)
    base = make_base(tmp_path / "base")
    run = make_run(tmp_path / "run", base)
    with caplog.at_level(logging.WARNING):
        assert served(base, run) == f"{run}/checkpoints/step000210/adapter"
    (line,) = caplog.messages
    assert line.startswith(f"{run}/checkpoints/step000210/adapter is served from where it lies, until its run removes")
    assert "no permission to write" in line


def test_a_place_that_does_not_answer_is_not_taken_for_one_without_a_copy(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make_base(tmp_path / "base")
    make_run(bucket / "lab" / "run", base)
    place, get = served(base, URL), Bucket.get

    def away(self: Bucket, key: str) -> bytes | None:
        if "/served/" in self.uri:
            raise StoreUnavailable("away")
        return get(self, key)

    monkeypatch.setattr(Bucket, "get", away)
    monkeypatch.setattr(Bucket, "replace", None)
    with pytest.raises(StoreUnavailable, match="away"):
        served(base, URL)
    monkeypatch.undo()
    assert (bucket / place.partition("bucket/")[2] / "adapter_model.safetensors").read_bytes() == b"weights"
