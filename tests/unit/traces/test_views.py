"""The printed line really loads the rows, offline, whatever the parts hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kb_ray.compact import compact
from kb_ray.records import StopReason
from kb_ray.traces.layout import part_key
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import LocalStore
from kb_ray.traces.views import load_dataset_line, reading_line
from tests.unit.traces.examples import make_episode, put_part

LOAD = """
import datasets
rows = list({line})
turns = rows[0]["turns"]
print(len(rows), sorted(r["task_id"] for r in rows), turns[0]["verdict"]["status"] if turns else None)
"""


def load(line: str, home: Path, env: dict[str, str] | None = None) -> str:
    """Runs the printed line in a process of its own, as a reader would."""
    environment = {**os.environ, **(env or {}), "HF_HUB_OFFLINE": "1", "HF_HOME": str(home)}
    command = [sys.executable, "-c", LOAD.format(line=line)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_parts_load_together_though_some_columns_are_all_null_in_some(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "out"))
    # The first part holds nothing but an episode without turns: types guessed from it would be null.
    for episode in (make_episode("a", stop=StopReason.INFRA_ERROR), make_episode("b")):
        data = table_bytes([episode])
        store.put_if_absent(part_key(data), data)
    assert load(load_dataset_line(store.uri), tmp_path) == "2 ['builtin/1/a', 'builtin/1/b'] None"
    compact(store, delete_parts=True)
    assert load(load_dataset_line(store.uri, compacted=True), tmp_path).startswith("2 ")


def test_the_line_of_a_store_finds_each_row_once_however_much_of_it_is_compacted(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "out"))
    put_part(store, 0)
    assert reading_line(store) == load_dataset_line(store.uri)
    compact(store)
    assert reading_line(store) == load_dataset_line(store.uri, compacted=True)
    put_part(store, 1)
    assert "python -m kb_ray.compact" in reading_line(store)
    assert "load_dataset" not in reading_line(store)
    compact(store, delete_parts=True)
    assert reading_line(store) == load_dataset_line(store.uri, compacted=True)
    put_part(store, 2)
    assert load(reading_line(store), tmp_path).startswith("3 ")


def test_the_line_names_the_endpoint_of_an_s3_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    line = load_dataset_line("s3://bucket/run")
    assert "'s3://bucket/run/parts/*.parquet'" in line
    assert '{"client_kwargs": {"endpoint_url": \'http://127.0.0.1:9\'}}' in line
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert "storage_options" not in load_dataset_line("s3://bucket/run")
