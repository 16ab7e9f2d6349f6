"""Checkpoints: whole or not there, found by one function, refused where they are not what was written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kb_ray import checkpoints
from kb_ray.checkpoints import Checkpoint
from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.store import DEAD_AFTER_S, LocalStore, Store

FILES = {"adapter/adapter_config.json": b"{}", "adapter/adapter_model.safetensors": b"weights", "state.pt": b"state"}


def made(step: int, **fields: object) -> Checkpoint:
    return Checkpoint.model_validate({"step": step, "base_model": "base", "fingerprint": "f"} | fields)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(str(tmp_path / "run"))


class Killed(Exception):
    """Stands for the end of the process."""


class Dying(LocalStore):
    """A store whose process dies at its n-th write."""

    def __init__(self, path: str, writes: int) -> None:
        super().__init__(path)
        self._left = writes

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    def replace(self, key: str, data: bytes) -> None:
        self._count()
        super().replace(key, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._count()
        return super().put_if_absent(key, data)


def test_what_was_saved_is_loaded(store: Store) -> None:
    assert checkpoints.latest(store) is None
    saved = checkpoints.save(store, made(3, progress={"p2": 0.15}), FILES)
    loaded = checkpoints.load(store, 3)
    assert loaded == (saved, FILES)
    assert loaded.checkpoint.progress == {"p2": 0.15}


def test_the_latest_is_the_highest_step_not_the_last_written(store: Store) -> None:
    for step in (9, 100, 12):
        checkpoints.save(store, made(step), FILES)
    found = checkpoints.latest(store)
    assert found is not None
    assert (found.step, checkpoints.steps(store)) == (100, [9, 12, 100])


@pytest.mark.parametrize("writes", range(len(FILES) + 1))
def test_killed_at_any_write_the_one_before_is_the_latest_and_the_next_try_is_whole(
    tmp_path: Path, writes: int
) -> None:
    store = LocalStore(str(tmp_path))
    checkpoints.save(store, made(1), FILES)
    with pytest.raises(Killed):
        checkpoints.save(Dying(str(tmp_path), writes), made(2), dict.fromkeys(FILES, b"half"))
    found = checkpoints.latest(store)
    assert found is not None
    assert found.step == 1
    checkpoints.save(store, made(2), FILES)
    assert checkpoints.load(store, 2).files == FILES


def test_a_step_that_is_there_is_left_as_it_is(store: Store) -> None:
    first = checkpoints.save(store, made(1), FILES)
    assert checkpoints.save(store, made(1), {"state.pt": b"other"}) == first
    assert checkpoints.load(store, 1).files == FILES


@pytest.mark.parametrize("damage", ["change", "remove", "mark"])
def test_damage_is_found_and_named(store: Store, damage: str) -> None:
    checkpoints.save(store, made(1), FILES)
    folder = Path(store.uri) / "checkpoints" / "step000001"
    if damage == "mark":
        (folder / "checkpoint.json").write_text('{"step": 1')
    elif damage == "change":
        (folder / "state.pt").write_bytes(b"stats")
    else:
        (folder / "state.pt").unlink()
    with pytest.raises(StoreError, match=r"damaged|missing") as caught:
        checkpoints.load(store, 1)
    assert "step000001" in str(caught.value)
    with pytest.raises(StoreError, match="no checkpoint of step 7"):
        checkpoints.load(store, 7)


def test_whoever_asks_for_a_model_finds_what_training_wrote(store: Store, tmp_path: Path) -> None:
    checkpoints.save(store, made(1), FILES)
    checkpoints.save(store, made(2), FILES)
    newest = Path(store.uri) / "checkpoints" / "step000002"
    assert checkpoints.adapter_folder(store.uri) == newest / "adapter"
    assert checkpoints.adapter_folder(newest) == newest / "adapter"
    assert checkpoints.adapter_folder(newest / "adapter") == newest / "adapter"
    assert checkpoints.adapter_folder(tmp_path) == tmp_path
    copy = LocalStore(str(tmp_path / "copy"))
    checkpoints.copy_adapter(store, checkpoints.read(store, 2), copy)
    assert checkpoints.check_adapter(checkpoints.adapter_folder(copy.uri)) == checkpoints.read(store, 2)
    assert copy.get("checkpoints/step000002/state.pt") is None


@pytest.mark.parametrize(
    ("base", "hash_", "refused"),
    [("base", None, False), ("moved/base", "h", False), ("base", "other", True), ("other", None, True)],
)
def test_a_checkpoint_of_another_base_model_is_refused(
    base: str, hash_: str | None, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "config_hashes", lambda model: (hash_,) if hash_ else ())
    checkpoint = made(4, base_hash="h")
    if not refused:
        checkpoints.refuse_other_base(checkpoint, base)
        return
    with pytest.raises(ConfigError, match="trained on base, not on"):
        checkpoints.refuse_other_base(checkpoint, base)


@pytest.mark.parametrize(
    ("known", "base", "hash_", "here", "differs"),
    [
        ({"a": "1"}, "base", None, {"a": "2"}, "weights"),
        ({"a": "1"}, "moved", None, {"a": "1"}, None),
        ({"a": "1"}, "moved", "h", {"a": "1"}, None),
        # Versions write one model's configuration differently.
        ({"a": "1"}, "moved", "other", {"a": "1"}, None),
        ({"a": "1"}, "moved", "other", {"b": "1"}, "config.json"),
        ({"a": "1", "b": "1"}, "moved", "h", {"a": "1", "b": "2"}, "weights"),
        ({"a": "1", "b": "1"}, "moved", "h", {"a": "1"}, None),
        # Nothing of the weights is known of both.
        ({"a": "1"}, "moved", None, {"b": "1"}, "name"),
        ({}, "moved", "h", {"a": "1"}, None),
        ({}, "moved", None, {"a": "1"}, "name"),
        ({}, "base", None, {}, None),
    ],
)
def test_a_base_model_is_the_same_by_its_weights_then_by_its_configuration_then_by_its_name(
    known: dict[str, str], base: str, hash_: str | None, here: dict[str, str], differs: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(checkpoints, "config_hashes", lambda model: (hash_,) if hash_ else ())
    checkpoint = made(4, base_hash="h", base_weights=known)
    assert checkpoints.differing_base(checkpoint, base, here) == differs


def test_old_ones_are_removed_the_last_are_kept(store: Store) -> None:
    for step in range(1, 6):
        checkpoints.save(store, made(step), FILES)
    assert checkpoints.prune(store, 2) == [1, 2, 3]
    assert checkpoints.steps(store) == [4, 5]
    assert checkpoints.load(store, 4).files == FILES
    assert store.list("checkpoints/step000001") == []


def test_a_damaged_old_one_is_removed_as_any_other(store: Store) -> None:
    for step in range(1, 4):
        checkpoints.save(store, made(step), FILES)
    store.replace("checkpoints/step000001/checkpoint.json", b'{"step": 1')
    assert checkpoints.prune(store, 1) == [1, 2]
    assert len(store.list("checkpoints/")) == len(store.list("checkpoints/step000003/")) == len(FILES) + 1


@pytest.mark.parametrize("keep", [0, 2])
def test_what_killed_starts_left_behind_goes_and_nothing_else(store: Store, keep: int) -> None:
    """A start that was killed when it had removed a mark, one that was killed while it wrote, and others' files."""
    for step in (1, 2, 3, 4):
        checkpoints.save(store, made(step), FILES)
    store.delete("checkpoints/step000001/checkpoint.json")
    store.replace("checkpoints/step000005/state.pt", b"perhaps being written")
    store.replace("checkpoints/notes/state.pt", b"of somebody")
    half = Path(store.uri) / "checkpoints" / "step000004" / f".tmp-{'0' * 32}"
    half.write_bytes(b"half")
    os.utime(half, (time.time() - DEAD_AFTER_S - 9,) * 2)
    checkpoints.prune(store, keep)
    left = {key.split("/")[1] for key in store.list("checkpoints/")}
    assert left == {f"step00000{step}" for step in ((3, 4, 5) if keep else (2, 3, 4, 5))} | {"notes"}
    assert not half.exists()
    assert checkpoints.load(store, 4).files == FILES


def test_a_run_that_moved_on_without_a_step_is_found_where_it_is(store: Store) -> None:
    first = checkpoints.save(store, made(3, progress={"batch": 3}), FILES)
    moved = checkpoints.save(store, made(3, progress={"batch": 5}), FILES | {"state.pt": b"other"})
    assert (moved.progress, moved.files) == ({"batch": 5}, first.files)
    assert checkpoints.load(store, 3).files == FILES
    assert checkpoints.latest(store) == moved
    assert checkpoints.save(store, made(3, progress={"batch": 9}, fingerprint="other"), FILES) == moved
