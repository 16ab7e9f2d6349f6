"""Files: shards and arrays are whole, the folder appears at the end or not at all."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kb_ray.errors import ConfigError
from kb_ray.exporting import files

CARD = "---\npretty_name: x\ntags:\n- triton\n- kb-ray-sft\n---\n\n# x\n"
SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})


def rows(count: int, size: int = 0) -> Iterator[dict[str, Any]]:
    return ({"n": n, "text": f"{n}" + "x" * size if size else None} for n in range(count))


def test_rows_come_back_in_order_in_groups_of_a_bounded_number(tmp_path: Path) -> None:
    assert files.write_parquet(rows(1234), SCHEMA, tmp_path / "data") == 1234
    [path] = (tmp_path / "data").iterdir()
    assert path.name == "train-00000-of-00001.parquet"
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [500, 500, 234]
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table.column("n").to_pylist() == list(range(1234))


def test_large_rows_make_small_groups(tmp_path: Path) -> None:
    files.write_parquet(rows(200, size=1024**2), SCHEMA, tmp_path / "data")
    metadata = pq.ParquetFile(next((tmp_path / "data").iterdir())).metadata
    assert max(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) == 50


def test_a_full_shard_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SHARD_BYTES", 1)
    files.write_parquet(rows(1200), SCHEMA, tmp_path / "data")
    paths = sorted((tmp_path / "data").iterdir())
    assert [path.name for path in paths] == [f"train-0000{i}-of-00003.parquet" for i in range(3)]
    assert [n for path in paths for n in pq.read_table(path).column("n").to_pylist()] == list(range(1200))


def test_no_row_makes_no_shard(tmp_path: Path) -> None:
    assert files.write_parquet(iter(()), SCHEMA, tmp_path / "data") == 0
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_is_what_json_itself_would_write(tmp_path: Path, count: int) -> None:
    some = [
        {"n": n, "text": 'a "quoted"\nline \u00e4', "nested": {"list": [1, None], "empty": []}} for n in range(count)
    ]
    assert files.write_json(iter(some), tmp_path / "x.json") == count
    assert (tmp_path / "x.json").read_text() == json.dumps(some, indent=2)


def test_the_folder_appears_whole_readable_and_alone(tmp_path: Path) -> None:
    with files.appearing(tmp_path / "deep" / "out", overwrite=False) as scratch:
        (scratch / "a").write_text("1")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "a").read_text() == "1"
    assert stat.S_IMODE((tmp_path / "deep" / "out").stat().st_mode) == 0o755
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_after_an_error_what_was_there_is_there_still(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text(CARD)

    def fail() -> None:
        with files.appearing(tmp_path / "out", overwrite=True) as scratch:
            (scratch / "new").write_text("2")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "README.md"]


def test_a_full_folder_is_replaced_only_when_told(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text(CARD)
    with pytest.raises(ConfigError, match="--overwrite"):
        files.check(tmp_path / "out", overwrite=False)
    with files.appearing(tmp_path / "out", overwrite=True) as scratch:
        (scratch / "new").write_text("2")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]


@pytest.mark.parametrize(
    "foreign", ["notes.txt", "data/mine.parquet", "parts/part-1.parquet", "data/train-00000-of-00001.parquet/x"]
)
def test_a_folder_that_holds_anything_but_an_export_is_never_replaced(tmp_path: Path, foreign: str) -> None:
    out = tmp_path / "out"
    (out / foreign).parent.mkdir(parents=True)
    (out / foreign).write_text("dear to me")
    for card in (None, "# my project\n", CARD):
        if card is not None:
            (out / "README.md").write_text(card)
        with pytest.raises(ConfigError, match="replaces an earlier export alone"):
            files.check(out, overwrite=True)
    with pytest.raises(ConfigError), files.appearing(out, overwrite=True):
        pytest.fail("it must not come to writing")
    assert (out / foreign).read_text() == "dear to me"


def test_what_came_while_the_export_was_made_stays(tmp_path: Path) -> None:
    def overtaken() -> None:
        with files.appearing(tmp_path / "out", overwrite=False):
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "theirs").write_text("1")

    with pytest.raises(ConfigError, match="it holds something"):
        overtaken()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]


def test_a_folder_is_apart_from_the_store_only_where_neither_holds_the_other(tmp_path: Path) -> None:
    store = tmp_path / "runs" / "a"
    store.mkdir(parents=True)
    (tmp_path / "link").symlink_to(store)
    for name in ("runs/a", "runs", "runs/a/exports/sft", "runs/b/../a", "link", "link/parts"):
        with pytest.raises(ConfigError, match="name a folder apart"):
            files.apart(tmp_path / name, str(store))
    files.apart(tmp_path / "runs" / "ab", str(store))
    files.apart(store, "s3://bucket/runs/a")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="it is a file"):
        files.check(tmp_path / "out", overwrite=True)
    with (
        pytest.raises(ConfigError, match="--output"),
        files.appearing(tmp_path / "out" / "below", overwrite=False),
    ):
        pytest.fail("there is no such folder to write in")
