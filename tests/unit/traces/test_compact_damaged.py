"""Compaction of damaged stores: nothing that is still good goes, what is lost is named."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from kb_ray.compact import compact, main
from kb_ray.errors import ConfigError
from kb_ray.traces.layout import final_key, list_finals, list_parts, part_key, read_manifest
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.schema import SCHEMA, encode, table_of
from kb_ray.traces.store import LocalStore
from tests.unit.traces.examples import make_episode, put_part


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "out"))


def flip(store: LocalStore, key: str) -> None:
    data = bytearray(store.get(key) or b"")
    data[len(data) // 2] ^= 1
    store.replace(key, bytes(data))


def held(store: LocalStore) -> list[tuple[int, int]]:
    return sorted((e.sample, e.attempt) for e in read_episodes(survey(store)))


@pytest.mark.parametrize("damage", ["altered", "gone"])
def test_no_part_goes_before_every_final_file_is_seen_to_be_whole(
    store: LocalStore, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    parts = [put_part(store, 0), put_part(store, 1)]
    broken = compact(store, rows_per_file=1).files[1].key
    flip(store, broken) if damage == "altered" else store.delete(broken)
    assert main([store.uri, "--delete-parts"]) == 2
    assert broken in capsys.readouterr().err
    assert list_parts(store) == parts


@pytest.mark.parametrize("damage", ["altered", "gone"])
@pytest.mark.parametrize("more", [(), (2,)])
def test_a_damaged_final_file_is_made_anew_from_the_parts_still_there(
    store: LocalStore, capsys: pytest.CaptureFixture[str], damage: str, more: tuple[int, ...]
) -> None:
    put_part(store, 0)
    put_part(store, 1)
    broken = compact(store).files[0].key
    flip(store, broken) if damage == "altered" else store.delete(broken)
    for sample in more:
        put_part(store, sample)
    with pytest.raises(ConfigError, match=r"kb_ray\.compact with it makes final files anew"):
        compact(store)
    assert [e.sample for e in read_episodes(survey(store, skip_corrupt=True))] == [*more, 0, 1]
    assert main([store.uri, "--skip-corrupt", "--delete-parts"]) == 0
    told = capsys.readouterr()
    assert f"skipped {broken}" in told.err
    assert "lost" not in told.err
    assert f"{2 + len(more)} rows" in told.out
    assert list_parts(store) == []
    assert held(store) == [(sample, 1) for sample in (0, 1, *more)]


def test_what_is_lost_is_counted_and_its_file_kept(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    put_part(store, 0, 1)
    compact(store, delete_parts=True)
    put_part(store, 2)
    broken = compact(store).files[0].key
    flip(store, broken)
    data = store.get(broken)
    assert main([store.uri, "--skip-corrupt"]) == 0
    told = capsys.readouterr()
    assert "lost: 2 rows" in told.err
    assert "1 rows" in told.out
    [copy] = store.list("damaged/")
    assert store.get(copy) == data
    assert f"kept {broken} as {copy}" in told.err
    assert held(store) == [(2, 1)]


def test_a_part_with_a_row_that_is_no_episode_stays_for_good(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = table_of([make_episode(sample=0), make_episode(sample=1)]).to_pylist()
    rows[1]["stop_reason"] = "bored"
    data = encode(pa.Table.from_pylist(rows, schema=SCHEMA))
    mixed = part_key(data)
    store.put_if_absent(mixed, data)
    put_part(store, 2)
    assert main([store.uri]) == 2
    assert read_manifest(store) is None
    assert main([store.uri, "--skip-corrupt", "--delete-parts"]) == 0
    assert "row 1 is no episode" in capsys.readouterr().err
    assert list_parts(store) == [mixed]
    assert [e.sample for e in read_episodes(survey(store, skip_corrupt=True))] == [0, 2]


def test_without_its_manifest_a_store_holds_what_it_held(store: LocalStore) -> None:
    put_part(store, 0, 1)
    compact(store, delete_parts=True)
    put_part(store, 1, attempt=2)
    store.replace("_manifest.json", b"{")
    with pytest.raises(ConfigError, match="remove it and compact again"):
        compact(store)
    store.delete("_manifest.json")
    assert held(store) == [(0, 1), (1, 2)]
    manifest = compact(store, delete_parts=True)
    assert manifest.rows == 3
    assert list_finals(store) == [file.key for file in manifest.files]
    assert held(store) == [(0, 1), (1, 2)]


def test_a_final_file_that_no_manifest_names_goes_only_once_its_episodes_are_elsewhere(store: LocalStore) -> None:
    put_part(store, 0)
    compact(store)
    stray = encode(table_of([make_episode(sample=7)]))
    key = final_key(0, 1, hashlib.sha256(stray).hexdigest())
    store.put_if_absent(key, stray)
    manifest = compact(store)
    assert key not in list_finals(store)
    assert manifest.rows == 2
    assert held(store) == [(0, 1), (7, 1)]


def test_final_files_left_by_a_killed_clean_up_go_and_the_manifest_stands(store: LocalStore) -> None:
    put_part(store, 0, 1)
    old = compact(store, rows_per_file=1)
    left = {file.key: store.get(file.key) or b"" for file in old.files}
    put_part(store, 2)
    new = compact(store)
    for key, data in left.items():
        store.put_if_absent(key, data)
    assert compact(store) == new
    assert list_finals(store) == [file.key for file in new.files]


def test_a_manifest_of_a_newer_kb_ray_is_not_read_as_ours(store: LocalStore) -> None:
    put_part(store, 0)
    manifest = compact(store)
    newer = manifest.model_copy(update={"schema_version": 99})
    store.replace("_manifest.json", newer.model_dump_json().encode())
    for skip in (False, True):
        with pytest.raises(ConfigError, match=r"schema version 99.*upgrade kb_ray"):
            survey(store, skip_corrupt=skip)
        with pytest.raises(ConfigError, match="upgrade kb_ray"):
            compact(store, skip_corrupt=skip)
