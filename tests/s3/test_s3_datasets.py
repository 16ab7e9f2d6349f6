"""The printed line loads the rows from a real S3 server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kb_ray.compact import compact
from kb_ray.records import StopReason
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import open_store
from kb_ray.traces.views import load_dataset_line
from tests.fixtures_s3 import S3Server
from tests.unit.traces.examples import make_episode
from tests.unit.traces.test_views import load


def test_parts_and_final_files_stream_from_the_server(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}")
    sink = TraceSink(store, save_interval=1)
    sink.add(make_episode("a", stop=StopReason.MODEL_ERROR))
    sink.add(make_episode("b"))
    sink.close()
    # The reader has credentials of its own; where the server is must come from the line.
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    line = load_dataset_line(store.uri, endpoint_url=s3_server.endpoint)
    assert load(line, tmp_path) == "2 ['builtin/1/a', 'builtin/1/b'] None"
    compact(store, delete_parts=True)
    line = load_dataset_line(store.uri, compacted=True, endpoint_url=s3_server.endpoint)
    assert load(line, tmp_path).startswith("2 ")
