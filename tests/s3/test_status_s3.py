"""The status command on a run whose traces are on a real S3 server, and what it says when that is gone."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from kb_ray import status
from kb_ray.config import RunConfig
from kb_ray.tally import Tally
from kb_ray.traces.run import RunInfo, open_run
from kb_ray.traces.store import open_store
from kb_ray.watching.presence import Presence
from tests import synthetic_traces
from tests.fixtures_s3 import S3Server


def test_a_run_on_s3_is_shown_from_there_alone(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    uri = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/run"
    assert status.main([uri]) == 2
    assert "no run here" in capsys.readouterr().err
    store = open_store(uri)
    config = RunConfig(output=uri, tasks=("builtin",))
    open_run(
        store,
        RunInfo(run_id="r", fingerprint="f", identity={"model": "m"}, config=config.public(), versions={},
                created_at="2026-01-02T03:04:05+00:00"),
    )  # fmt: skip
    synthetic_traces.write_parts(store, synthetic_traces.episodes(20), per_part=5)
    presence = Presence(store, "r", Tally(total=30, earlier=0, started=time.monotonic()))
    presence.end("budget", "--max-hours 1 reached")
    assert status.main([uri, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["episodes"], found["planned"], found["state"], found["files"]) == (20, 30, "stopped", 4)
    assert found["resume"] == f"python -m kb_ray.generate --tasks builtin --output {uri}"


def test_a_bucket_that_is_not_there_is_one_line(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    assert status.main(["s3://no-such-bucket/run"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
