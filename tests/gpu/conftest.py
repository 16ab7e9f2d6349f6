"""Tests that need a real GPU: marked, and skipped with the reason where there is none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.cluster import local_gpus
from kb_ray.records import Task, Verdict
from tests.fixtures_bench import Verify

_ids = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = None if local_gpus() else "needs a CUDA GPU, and this machine shows none"
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.gpu)
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def gpu_evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator(device="cuda", gpu="0", concurrency=4, name="gpu-tests")
    evaluator.start()
    yield evaluator
    evaluator.stop()


@pytest.fixture(scope="session")
def verify_on_gpu(gpu_evaluator: Evaluator) -> Verify:
    """Verdict of a candidate's source against a task, timed."""

    def verify(code: str, task: Task, **settings: float) -> Verdict:
        wanted = BenchSettings(**({"timeout_s": 60.0, "device": "cuda"} | settings))
        request = BenchRequest(request_id=f"g{next(_ids)}", task=task, kernel_code=code, settings=wanted)
        return gpu_evaluator.evaluate(request)

    return verify
