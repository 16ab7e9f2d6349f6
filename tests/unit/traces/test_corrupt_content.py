"""Files that are Parquet and hold no episodes, or rows that are none: named first, left out if told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kb_ray import compact, evaluate, export, report
from kb_ray.errors import ConfigError
from kb_ray.traces.layout import part_key
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.schema import SCHEMA, encode, table_bytes, table_of
from kb_ray.traces.store import LocalStore
from tests.unit.traces.examples import make_episode

KEYS = ["episode_id", "task_id", "sample", "attempt"]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path / "out"))
    data = table_bytes([make_episode(sample=0)])
    store.put_if_absent(part_key(data), data)
    return store


def changed(path: list[str | int], value: Any) -> pa.Table:
    """Samples 1 and 2, the second with one value changed."""
    rows = table_of([make_episode(sample=1), make_episode(sample=2)]).to_pylist()
    at: Any = rows[1]
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def with_column(name: str, values: pa.Array) -> pa.Table:
    table = table_of([make_episode(sample=1), make_episode(sample=2)])
    return table.set_column(table.schema.get_field_index(name), name, values)


WHOLE = table_of([make_episode(sample=1), make_episode(sample=2)])
TABLES = {
    "keys alone": WHOLE.select(KEYS),
    "null keys": with_column("task_id", pa.array([None, None], pa.string())),
    "version": WHOLE.replace_schema_metadata({b"kb_ray.schema_version": b"three"}),
    "text for numbers": with_column("sample", pa.array(["one", "two"])),
    "number for turns": with_column("turns", pa.array([1, 2])),
}
ROWS: dict[str, tuple[list[str | int], Any]] = {
    "status": (["turns", 0, "verdict", "status"], "great"),
    "stop reason": (["stop_reason"], "bored"),
    "null task": (["task_id"], None),
    "null sample": (["sample"], None),
    "null turns": (["turns"], None),
    "shapes": (["input_shapes"], "{"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_without_one_episode_is_named_and_left_out_only_when_told(store: LocalStore, kind: str) -> None:
    data = encode(TABLES[kind])
    key = part_key(data)
    store.put_if_absent(key, data)
    with pytest.raises(ConfigError, match="1 damaged") as refused:
        survey(store)
    assert key in str(refused.value)
    assert "\n" not in str(refused.value)
    found = survey(store, skip_corrupt=True)
    assert [file.key for file in found.damaged] == [key]
    assert [episode.sample for episode in read_episodes(found)] == [0]


@pytest.mark.parametrize("kind", ROWS)
def test_a_row_that_is_no_episode_is_named_and_the_others_of_its_file_count(store: LocalStore, kind: str) -> None:
    data = encode(changed(*ROWS[kind]))
    key = part_key(data)
    store.put_if_absent(key, data)
    with pytest.raises(ConfigError, match="row 1 is no episode") as refused:
        survey(store)
    assert key in str(refused.value)
    assert "\n" not in str(refused.value)
    for verify in (True, False):
        found = survey(store, skip_corrupt=True, verify=verify)
        assert [file.key for file in found.damaged] == [key]
        assert [episode.sample for episode in read_episodes(found)] == [0, 1]
        assert found.superseded == 0
    with pytest.raises(ConfigError, match="row 1 is no episode"):
        list(read_episodes(survey(store, verify=False)))


def test_a_bad_later_attempt_does_not_hide_the_good_one(store: LocalStore) -> None:
    rows = table_of([make_episode(sample=0, attempt=2)]).to_pylist()
    rows[0]["stop_reason"] = None
    data = encode(pa.Table.from_pylist(rows, schema=SCHEMA))
    store.put_if_absent(part_key(data), data)
    assert [(e.sample, e.attempt) for e in read_episodes(survey(store, skip_corrupt=True))] == [(0, 1)]


def test_a_damaged_page_is_found_where_no_hash_tells_of_it(store: LocalStore) -> None:
    path = Path(store.uri) / "parts" / "part-byhand.parquet"
    path.write_bytes(encode(WHOLE))
    metadata = pq.ParquetFile(path).metadata.row_group(0)
    columns = [metadata.column(at) for at in range(metadata.num_columns)]
    code = next(column for column in columns if column.path_in_schema == "reference_code")
    data = bytearray(path.read_bytes())
    start = code.dictionary_page_offset or code.data_page_offset
    data[start : start + code.total_compressed_size] = b"\xff" * code.total_compressed_size
    path.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match=r"1 damaged: parts/part-byhand\.parquet"):
        survey(store)
    assert survey(store, skip_corrupt=True).episodes == 1


def test_every_command_names_it_in_one_line_and_goes_on_when_told(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = []
    for table in (*TABLES.values(), *(changed(*change) for change in ROWS.values())):
        data = encode(table)
        keys.append(part_key(data))
        store.put_if_absent(keys[-1], data)
    commands = [
        (report.main, [store.uri, "--output", "page.html"]),
        (export.main, [store.uri, "--view", "raw", "--output", "raw"]),
        (evaluate.main, ["--from", store.uri, "--results", "results"]),
        (compact.main, [store.uri]),
    ]
    for command, argv in commands:
        assert command(argv) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert f"{len(keys)} damaged" in told
        assert "Traceback" not in told
        assert command([*argv, "--skip-corrupt"]) == 0, capsys.readouterr().err
        told = capsys.readouterr().err
        assert all(key in told for key in keys)
