"""Reading a store: what counts, what is damaged, and what is refused before anything is done."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kb_ray.compact import compact
from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.layout import list_parts
from kb_ray.traces.reading import read_episodes, read_tables, survey
from kb_ray.traces.schema import SCHEMA, encode, table_of
from kb_ray.traces.store import LocalStore
from kb_ray.traces.views import episodes
from tests.unit.traces.examples import make_episode, put_part


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "out"))


def file_of(store: LocalStore, key: str) -> Path:
    return Path(store.uri) / key


def test_it_reads_what_the_simpler_reader_reads(store: LocalStore) -> None:
    put_part(store, *range(150))
    put_part(store, 3, 149, attempt=2)
    put_part(store, 150)
    found = survey(store)
    assert (found.episodes, found.superseded, found.damaged) == (151, 2, ())
    assert list(read_episodes(found)) == list(episodes(store))
    compact(store)
    put_part(store, 7, attempt=2)
    assert sorted((e.sample, e.attempt) for e in read_episodes(survey(store)) if e.attempt > 1) == [
        (3, 2), (7, 2), (149, 2),
    ]  # fmt: skip


def test_tables_are_small_and_have_the_columns_asked_for(store: LocalStore) -> None:
    put_part(store, *range(200))
    tables = list(read_tables(survey(store), ["sample", "task_id"]))
    assert [table.num_rows for table in tables] == [128, 72]
    assert tables[0].column_names == ["task_id", "sample"]
    assert [s for table in tables for s in table.column("sample").to_pylist()] == list(range(200))


def test_an_older_file_is_read_with_nulls_for_what_it_lacks(store: LocalStore) -> None:
    old = table_of([make_episode()]).drop_columns(["flags"])
    store.put_if_absent("parts/part-old.parquet", encode(old))
    [table] = read_tables(survey(store))
    assert table.schema.equals(SCHEMA)
    assert table.column("flags").to_pylist() == [None]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "text"])
def test_a_damaged_part_is_named_and_left_out_only_when_told(store: LocalStore, damage: str) -> None:
    put_part(store, 0)
    key = put_part(store, 1)
    path = file_of(store, key)
    data = path.read_bytes()
    if damage == "foreign":
        sink = io.BytesIO()
        pq.write_table(pa.table({"x": [1]}), sink)
        path.unlink()
        key = "parts/part-foreign.parquet"
        file_of(store, key).write_bytes(sink.getvalue())
    else:
        flipped = bytearray(data)
        flipped[len(data) // 3] ^= 1
        broken = {"cut": data[:-20], "empty": b"", "text": b"not parquet at all", "flipped": bytes(flipped)}
        path.write_bytes(broken[damage])
    with pytest.raises(ConfigError, match=r"1 damaged.*--skip-corrupt") as refused:
        survey(store)
    assert key in str(refused.value)
    assert "\n" not in str(refused.value)
    found = survey(store, skip_corrupt=True)
    assert [file.key for file in found.damaged] == [key]
    assert [episode.sample for episode in read_episodes(found)] == [0]


def test_every_damaged_file_is_named_at_once(store: LocalStore) -> None:
    keys = [put_part(store, i) for i in range(3)]
    for key in keys:
        file_of(store, key).write_bytes(b"x")
    with pytest.raises(ConfigError) as refused:
        survey(store)
    assert all(key in str(refused.value) for key in keys)
    with pytest.raises(ConfigError, match="none of its 3 files can be read"):
        survey(store, skip_corrupt=True)


def test_a_file_of_a_newer_schema_is_refused_and_never_skipped(store: LocalStore) -> None:
    put_part(store, 0)
    newer = table_of([make_episode(sample=1)]).replace_schema_metadata({b"kb_ray.schema_version": b"99"})
    store.put_if_absent("parts/part-newer.parquet", encode(newer))
    for skip in (False, True):
        with pytest.raises(ConfigError, match=r"part-newer\.parquet: .*version 99.*upgrade kb_ray"):
            survey(store, skip_corrupt=skip)


def test_a_compacted_file_that_is_gone_is_named(store: LocalStore) -> None:
    put_part(store, 0)
    put_part(store, 1)
    manifest = compact(store, rows_per_file=1, delete_parts=True)
    store.delete(manifest.files[0].key)
    with pytest.raises(ConfigError, match="named by the manifest, not there"):
        survey(store)
    assert survey(store, skip_corrupt=True).episodes == 1


def test_what_a_killed_writer_left_is_not_a_part(store: LocalStore) -> None:
    put_part(store, 0)
    file_of(store, "parts/.tmp-0123").write_bytes(b"PAR1 half")
    assert survey(store).episodes == 1


def test_an_empty_store_says_whether_a_run_began(store: LocalStore) -> None:
    with pytest.raises(ConfigError, match="no episodes here, name the --output of a run"):
        survey(store)
    store.put_if_absent("run.json", b"{}")
    with pytest.raises(ConfigError, match="has finished no episode yet"):
        survey(store)


def test_a_file_that_goes_after_the_survey_is_the_stores_failure(store: LocalStore) -> None:
    key = put_part(store, 0)
    found = survey(store)
    file_of(store, key).unlink()
    with pytest.raises(StoreError):
        list(read_episodes(found))


def test_without_verification_only_what_parquet_itself_sees_is_damage(store: LocalStore) -> None:
    key = put_part(store, 0)
    data = file_of(store, key).read_bytes()
    file_of(store, key).unlink()
    renamed = key.replace(key[-24:-8], "0123456789abcdef")
    file_of(store, renamed).write_bytes(data)
    assert list_parts(store) == [renamed]
    assert survey(store, verify=False).episodes == 1
    with pytest.raises(ConfigError, match="not what was written"):
        survey(store)
