"""The folder store: the contract, and what a file system adds to it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.store import DEAD_AFTER_S, LocalStore, StoreUnavailable, open_store
from tests.unit.traces.store_contract import StoreContract


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "out"))


class TestLocalStore(StoreContract):
    pass


def test_a_half_written_file_of_a_killed_writer_is_no_key(store: LocalStore) -> None:
    store.put_if_absent("parts/a.parquet", b"x")
    (Path(store.uri) / "parts" / ".tmp-0123").write_bytes(b"half")
    assert store.list("parts/") == ["parts/a.parquet"]


def test_no_temporary_file_stays_after_a_put(store: LocalStore) -> None:
    store.put_if_absent("parts/a", b"1")
    store.put_if_absent("parts/a", b"2")
    store.replace("parts/a", b"3")
    assert os.listdir(Path(store.uri) / "parts") == ["a"]


def test_half_written_files_go_once_nobody_can_be_writing_them(store: LocalStore) -> None:
    store.put_if_absent("final/a.parquet", b"x")
    folder = Path(store.uri) / "final"
    dead, alive, own = (folder / f".tmp-{name}" for name in ("0" * 32, "1" * 32, "notes"))
    for path in (dead, alive, own, folder / "a.parquet"):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - DEAD_AFTER_S - 9,) * 2)
    os.utime(alive)
    store.remove_leftovers()
    assert sorted(path.name for path in folder.iterdir()) == [alive.name, own.name, "a.parquet"]


def test_without_hard_links_a_key_is_still_created_once(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert store.put_if_absent("parts/a", b"1") is True
    assert store.put_if_absent("parts/a", b"2") is False
    assert store.get("parts/a") == b"1"


def test_a_full_disk_may_pass_and_a_file_in_the_way_does_not(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            store.put_if_absent("parts/a", b"1")
    assert store.list("") == []
    store.put_if_absent("file", b"")
    with pytest.raises(StoreError) as caught:
        store.put_if_absent("file/a", b"1")
    assert not isinstance(caught.value, StoreUnavailable)


def test_checking_a_new_folder_does_not_make_it(tmp_path: Path) -> None:
    open_store(str(tmp_path / "a" / "b")).check_writable()
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="is a file, name a folder"):
            open_store(str(path)).check_writable()


def test_a_folder_without_write_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write everywhere, whatever the mode says; the question to the system is what is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(ConfigError, match="no permission to write"):
        open_store(str(tmp_path)).check_writable()


@pytest.mark.parametrize(("uri", "message"), [("gs://b/p", "unknown kind"), ("s3://", "no bucket"), ("", "empty")])
def test_an_output_that_names_no_store_is_refused(uri: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_store(uri)
