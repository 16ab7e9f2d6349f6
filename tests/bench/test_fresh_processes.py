"""A judge and its zygotes are replaced after so many verdicts, and no verdict is lost by it; nor is the evaluator lost
by a cleaner of temporary files."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.bench.sweep import base_dir
from kb_ray.records import Status
from tests.fixtures_bench import ADD_RELU, KERNEL


def test_verdicts_go_on_over_fresh_processes() -> None:
    evaluator = Evaluator(device="cpu", concurrency=2, name="short-lived", lifetime=3)
    seen = set[int]()

    def judge(number: int) -> Status:
        settings = BenchSettings(n_correctness=1, timeout_s=30.0)
        request = BenchRequest(
            request_id=f"l{number}", task=ADD_RELU, kernel_code=f"# {number}\n{KERNEL}", settings=settings
        )
        status = evaluator.evaluate(request).status
        seen.add(evaluator.pids().get("judge", 0))
        return status

    try:
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(judge, range(7))) == [Status.OK] * 7
        assert len(seen - {0}) == 3
    finally:
        evaluator.stop()


def test_an_evaluator_whose_folder_was_cleaned_away_stops_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    evaluator = Evaluator(device="cpu", concurrency=1, name="cleaned")
    request = BenchRequest(
        request_id="c", task=ADD_RELU, kernel_code=KERNEL, settings=BenchSettings(n_correctness=1, timeout_s=30.0)
    )
    try:
        evaluator.start()
        shutil.rmtree(base_dir())
        evaluator.stop()
        assert evaluator.run_dir is None
        assert evaluator.evaluate(request).status == Status.OK
    finally:
        evaluator.stop()
    assert not list(base_dir().iterdir())
