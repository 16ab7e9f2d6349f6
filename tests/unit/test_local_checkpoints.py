"""Checkpoints by their names: found wherever they are, copied from S3 whole or not at all. Buckets are folders here."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

import pytest

from kb_ray import checkpoints, local_checkpoints
from kb_ray.checkpoints import Checkpoint
from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.store import LocalStore
from tests.unit.test_checkpoints import Dying, Killed

FILES = {"adapter/adapter_config.json": b"{}", "adapter/adapter_model.safetensors": b"weights", "state.pt": b"state"}
RUN = "s3://bucket/lab/run"


class Counting(LocalStore):
    """A bucket that counts what is fetched of it, and says what its URL is."""

    fetched: list[str]
    before_get: Callable[[str], None] | None = None

    def get(self, key: str) -> bytes | None:
        if self.before_get is not None:
            self.before_get(key)
        self.fetched.append(key)
        return super().get(key)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The run at RUN with checkpoints of steps 1 and 2, in place of S3; the cache is one of the test's own."""
    store = Counting(str(tmp_path / "s3" / "lab" / "run"))
    store.fetched = []
    empty = Counting(str(tmp_path / "s3" / "empty"))
    empty.fetched = []
    for step in (1, 2):
        save(store, step)
    store.uri = RUN
    monkeypatch.setattr(local_checkpoints, "open_store", lambda uri: store if uri == RUN else empty)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return store


def save(store: LocalStore, step: int, weights: bytes = b"weights") -> None:
    told = Checkpoint(step=step, base_model="base", fingerprint="f")
    checkpoints.save(store, told, FILES | {"adapter/adapter_model.safetensors": weights + b"%d" % step})


def weights_of(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (RUN, 2), (f"{RUN}/", 2), (f"{RUN}/checkpoints/step000001", 1), (f"{RUN}/checkpoints/step000002/adapter/", 2),
    ],
)  # fmt: skip
def test_a_run_or_checkpoint_on_s3_is_a_folder_that_a_runs_own_is_like(bucket: Counting, name: str, step: int) -> None:
    assert local_checkpoints.is_checkpoint(name)
    place = local_checkpoints.place(name)
    assert place == f"{RUN}/checkpoints/step{step:06d}/adapter"
    folder = local_checkpoints.here(name)
    assert folder == local_checkpoints.here(place)
    assert weights_of(folder) == b"weights%d" % step
    told = local_checkpoints.check(folder, None)
    assert told is not None
    assert told.step == step
    assert local_checkpoints.name_of(folder) == f"run-step{step:06d}"
    assert not any(key.endswith("state.pt") for key in bucket.fetched), "nobody but training needs it"


def test_a_folder_is_left_where_it_is(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "run"))
    save(store, 7)
    adapter = tmp_path / "run" / "checkpoints" / "step000007" / "adapter"
    assert local_checkpoints.here(str(tmp_path / "run")) == adapter
    assert local_checkpoints.place(str(tmp_path / "run")) == str(adapter)
    assert local_checkpoints.is_checkpoint(str(tmp_path / "run"))
    assert not local_checkpoints.is_checkpoint(str(tmp_path))
    assert [local_checkpoints.name_of(PurePath(path)) for path in ("/a/final", "/adapter")] == ["final", "adapter"]


def test_a_copy_is_not_fetched_again_and_a_damaged_one_is(bucket: Counting) -> None:
    folder = local_checkpoints.here(RUN)
    bucket.fetched.clear()
    assert local_checkpoints.here(RUN) == folder
    assert bucket.fetched == ["checkpoints/step000002/checkpoint.json"]
    (folder / "adapter_model.safetensors").write_bytes(b"wei")
    assert weights_of(local_checkpoints.here(RUN)) == b"weights2"


def test_other_weights_under_the_same_name_are_another_copy(bucket: Counting, tmp_path: Path) -> None:
    before = local_checkpoints.here(RUN)
    checkpoints.prune(bucket, 1)
    for key in bucket.list("checkpoints/"):
        bucket.delete(key)
    save(bucket, 2, b"others")
    after = local_checkpoints.here(RUN)
    assert (weights_of(before), weights_of(after)) == (b"weights2", b"others2")


@pytest.mark.parametrize("writes", range(3))
def test_a_copy_killed_at_any_write_is_no_copy_and_the_next_is_whole(
    bucket: Counting, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(local_checkpoints, "LocalStore", lambda path: Dying(path, writes))
        with pytest.raises(Killed):
            local_checkpoints.here(RUN)
    cached = local_checkpoints.here(RUN)
    assert local_checkpoints.check(cached, None) is not None
    assert weights_of(cached) == b"weights2"


def test_several_at_once_all_get_it_whole(bucket: Counting) -> None:
    def fetch(_: int) -> bytes:
        folder = local_checkpoints.here(RUN)
        assert local_checkpoints.check(folder, None) is not None
        return weights_of(folder)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(fetch, range(32))) == {b"weights2"}


def test_a_run_that_goes_on_meanwhile_gives_its_next_checkpoint(bucket: Counting) -> None:
    def moves_on(key: str) -> None:
        if key.endswith(".safetensors"):
            bucket.before_get = None
            save(bucket, 3)
            checkpoints.prune(bucket, 1)

    bucket.before_get = moves_on
    assert weights_of(local_checkpoints.here(RUN)) == b"weights3"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("s3://bucket/empty", "there is no checkpoint at s3://bucket/empty: name a training run's output"),
        (f"{RUN}/checkpoints/step000009", r"there is no checkpoint at .*step000009 \(it has 1, 2\)"),
        ("gs://bucket/run", "gs://bucket/run cannot be read: name a training run's output"),
    ],
)
def test_what_is_not_there_is_one_line(bucket: Counting, name: str, said: str) -> None:
    for ask in (local_checkpoints.here, local_checkpoints.place):
        with pytest.raises(ConfigError, match=said) as caught:
            ask(name)
        assert "\n" not in str(caught.value)


def test_a_file_that_is_damaged_on_s3_is_named_and_nothing_is_left_that_looks_whole(bucket: Counting) -> None:
    bucket.replace("checkpoints/step000002/adapter/adapter_model.safetensors", b"wei")
    with pytest.raises(StoreError, match=r"s3://.*step000002/adapter/adapter_model\.safetensors is damaged"):
        local_checkpoints.here(RUN)
    save(bucket, 3)
    assert weights_of(local_checkpoints.here(RUN)) == b"weights3"


@pytest.mark.parametrize("key", ["adapter/../../../../../above", "adapter//tmp/absolute", "adapter/.hidden"])
def test_metadata_cannot_have_anything_written_outside_the_cache(bucket: Counting, tmp_path: Path, key: str) -> None:
    mark = "checkpoints/step000002/checkpoint.json"
    told = json.loads(bucket.get(mark) or b"")
    told["files"][key] = told["files"]["adapter/adapter_config.json"]
    bucket.replace(mark, json.dumps(told).encode())
    with pytest.raises(ConfigError, match="is damaged: it names a file"):
        local_checkpoints.here(RUN)
    assert not (tmp_path / "cache").exists()
