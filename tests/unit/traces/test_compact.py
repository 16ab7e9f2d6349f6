"""Compaction: each episode once, at any moment, and the parts stay until they may go."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kb_ray.compact import Pieces, compact, main, write_here
from kb_ray.errors import ConfigError, StoreError
from kb_ray.evaluation.attempts import counted
from kb_ray.records import StopReason
from kb_ray.traces.layout import FinalFile, final_key, list_parts, part_key, read_manifest
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.resume import finished
from kb_ray.traces.schema import SCHEMA, encode, table_bytes, table_of
from kb_ray.traces.store import LocalStore, Store
from kb_ray.traces.views import episodes
from tests.unit.traces.examples import make_episode, put_part


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "out"))


def held(store: LocalStore) -> list[tuple[int, int]]:
    return sorted((e.sample, e.attempt) for e in episodes(store))


def final_rows(store: LocalStore) -> list[tuple[int, int]]:
    """What someone finds who only globs the folder."""
    tables = [pq.read_table(path) for path in sorted((Path(store.uri) / "final").glob("*.parquet"))]
    return sorted((row["sample"], row["attempt"]) for table in tables for row in table.to_pylist())


def test_files_have_the_asked_size_and_hold_every_episode(store: LocalStore) -> None:
    for i in range(5):
        put_part(store, 2 * i, 2 * i + 1)
    before = held(store)
    manifest = compact(store, rows_per_file=4)
    assert [file.rows for file in manifest.files] == [4, 4, 2]
    assert [file.key.split("-")[1:4] for file in manifest.files] == [[f"0000{i}", "of", "00003"] for i in range(3)]
    for file in manifest.files:
        assert hashlib.sha256(store.get(file.key) or b"").hexdigest() == file.sha256
    assert final_rows(store) == held(store) == before


def test_each_attempt_is_kept_once_and_the_highest_counts_as_before(store: LocalStore) -> None:
    put_part(store, 0, 1)
    put_part(store, 0, attempt=2)
    put_part(store, 1)
    manifest = compact(store, delete_parts=True)
    assert final_rows(store) == [(0, 1), (0, 2), (1, 1)]
    assert manifest.rows == 3
    assert held(store) == [(0, 2), (1, 1)]
    assert (survey(store).episodes, survey(store).superseded) == (2, 1)


def test_rates_are_those_of_the_first_judged_attempt_before_and_after(store: LocalStore) -> None:
    for attempt, stop in ((1, StopReason.INFRA_ERROR), (2, StopReason.MAX_TURNS), (3, StopReason.SUCCESS_FAST)):
        data = table_bytes([make_episode(attempt=attempt, stop=stop)])
        store.put_if_absent(part_key(data), data)
    before = [e.attempt for e in read_episodes(counted(survey(store)).found)]
    compact(store, delete_parts=True)
    assert [e.attempt for e in read_episodes(counted(survey(store)).found)] == before == [2]


@pytest.mark.parametrize("stop", [StopReason.INFRA_ERROR, StopReason.MODEL_ERROR])
def test_a_failure_of_ours_does_not_take_the_place_of_a_judged_answer(store: LocalStore, stop: StopReason) -> None:
    put_part(store, 0, 1)
    for attempt, sample in ((2, 0), (1, 2), (2, 2)):
        data = table_bytes([make_episode(sample=sample, attempt=attempt, stop=stop)])
        store.put_if_absent(part_key(data), data)
    assert [(e.sample, e.attempt) for e in read_episodes(survey(store))] == [(0, 1), (1, 1), (2, 2)]
    compact(store, delete_parts=True)
    assert final_rows(store) == [(0, 1), (0, 2), (1, 1), (2, 1), (2, 2)]
    assert [(e.sample, e.attempt) for e in read_episodes(survey(store))] == [(0, 1), (1, 1), (2, 2)]


def test_parts_stay_until_told_and_go_when_told(store: LocalStore) -> None:
    put_part(store, 0)
    compact(store)
    assert len(list_parts(store)) == 1
    compact(store, delete_parts=True)
    assert list_parts(store) == []
    assert held(store) == [(0, 1)]


def test_episodes_written_after_a_compaction_count_and_join_the_next(store: LocalStore) -> None:
    put_part(store, 0, 1)
    compact(store, delete_parts=True)
    put_part(store, 2)
    put_part(store, 1, attempt=2)
    assert held(store) == [(0, 1), (1, 2), (2, 1)]
    assert finished(store)["builtin/1/add_relu", 1].attempt == 2
    compact(store, rows_per_file=1)
    assert held(store) == [(0, 1), (1, 2), (2, 1)]
    assert final_rows(store) == [(0, 1), (1, 1), (1, 2), (2, 1)]


def test_compacting_again_changes_nothing(store: LocalStore) -> None:
    put_part(store, 0)
    first = compact(store)
    assert compact(store) == first


def test_a_compaction_killed_before_its_manifest_is_as_if_it_never_was(store: LocalStore) -> None:
    put_part(store, 0, 1)
    stray = encode(table_of([make_episode(sample=0)]))
    store.put_if_absent(final_key(0, 2, hashlib.sha256(stray).hexdigest()), stray)
    assert held(store) == [(0, 1), (1, 1)]
    compact(store)
    assert final_rows(store) == [(0, 1), (1, 1)]


def test_half_written_files_of_killed_compactions_go(store: LocalStore) -> None:
    put_part(store, 0)
    compact(store)
    half = Path(store.uri) / "final" / f".tmp-{'0' * 32}"
    half.write_bytes(b"half")
    compact(store)
    assert half.exists(), "another compaction may be writing it"
    os.utime(half, (0, 0))
    compact(store)
    assert store.leftovers() == ()


def test_a_deleted_part_that_a_late_retry_writes_again_is_not_counted_twice(store: LocalStore) -> None:
    put_part(store, 0)
    key = list_parts(store)[0]
    data = store.get(key) or b""
    compact(store, delete_parts=True)
    store.put_if_absent(key, data)
    assert held(store) == [(0, 1)]
    compact(store)
    assert final_rows(store) == [(0, 1)]


def test_parts_of_an_older_schema_are_brought_up_to_date(store: LocalStore) -> None:
    put_part(store, 0)
    store.put_if_absent("parts/part-old.parquet", encode(table_of([make_episode(sample=1)]).drop_columns(["error"])))
    compact(store)
    for path in (Path(store.uri) / "final").iterdir():
        assert pq.read_schema(path).equals(SCHEMA)
    assert held(store) == [(0, 1), (1, 1)]


def test_an_empty_store_is_the_users_error_and_stays_empty(store: LocalStore) -> None:
    with pytest.raises(ConfigError, match="no episodes here"):
        compact(store)
    assert not Path(store.uri).exists()


def test_the_command_tells_what_it_made(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    put_part(store, 0)
    put_part(store, 1)
    assert main([store.uri, "--delete-parts"]) == 0
    out = capsys.readouterr().out
    assert "2 rows, one for each attempt of an episode, in 1 files" in out
    assert f"{store.uri}/final/*.parquet" in out
    assert list_parts(store) == []
    manifest = read_manifest(store)
    assert manifest is not None
    assert manifest.rows == 2


@pytest.mark.parametrize("argv", [[], ["x", "--rows-per-file", "0"], ["x", "--nope"], ["/nowhere/at/all"], ["gs://b"]])
def test_unusable_input_is_one_line_and_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_damaged_part_stops_it_and_with_leave_is_named_and_kept_for_good(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    put_part(store, 0)
    put_part(store, 1)
    broken, whole = list_parts(store)
    path = Path(store.uri) / broken
    path.write_bytes(path.read_bytes()[:-9])
    assert main([store.uri, "--delete-parts"]) == 2
    assert broken in capsys.readouterr().err
    assert list_parts(store) == [broken, whole]
    assert main([store.uri, "--delete-parts", "--skip-corrupt"]) == 0
    assert f"skipped {broken}" in capsys.readouterr().err
    assert list_parts(store) == [broken]
    assert final_rows(store) == [(1, 1)]


def test_a_row_group_holds_a_bounded_number_of_episodes(store: LocalStore) -> None:
    for first in range(0, 600, 200):
        put_part(store, *range(first, first + 200))
    compact(store)
    [path] = (Path(store.uri) / "final").iterdir()
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [500, 100]


def test_a_compaction_that_another_one_overtook_leaves_the_other_ones_manifest(store: LocalStore) -> None:
    put_part(store, 0)
    put_part(store, 1)

    def overtaken(store: Store, plans: Sequence[Pieces]) -> list[FinalFile]:
        files = write_here(store, plans)
        compact(store, rows_per_file=2)
        return files

    with pytest.raises(StoreError, match="another compaction ran meanwhile"):
        compact(store, rows_per_file=1, write=overtaken)
    assert held(store) == final_rows(store) == [(0, 1), (1, 1)]


def test_parts_written_meanwhile_are_neither_lost_nor_deleted_too_soon(store: LocalStore) -> None:
    put_part(store, 0)

    def slow(store: Store, plans: Sequence[Pieces]) -> list[FinalFile]:
        put_part(store, 1)
        return write_here(store, plans)

    compact(store, delete_parts=True, write=slow)
    assert held(store) == [(0, 1), (1, 1)]
    assert final_rows(store) == [(0, 1)]
    compact(store, delete_parts=True)
    assert final_rows(store) == [(0, 1), (1, 1)]


def test_a_damaged_manifest_is_reported_not_ignored(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    put_part(store, 0)
    store.replace("_manifest.json", b"{")
    assert main([store.uri]) == 2
    assert "_manifest.json is damaged" in capsys.readouterr().err


def test_an_episode_redone_after_an_outage_of_ours_replaces_the_failed_one(store: LocalStore) -> None:
    failed = table_bytes([make_episode(stop=StopReason.INFRA_ERROR)])
    store.put_if_absent(part_key(failed), failed)
    compact(store, delete_parts=True)
    put_part(store, 0, attempt=2)
    compact(store, delete_parts=True)
    assert [e.stop_reason for e in episodes(store)] == [StopReason.SUCCESS_FAST]
