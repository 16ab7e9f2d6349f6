"""Tests that need a real GPU: marked, and skipped with the reason where there is none."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator

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


@pytest.fixture
def used() -> Callable[[], int]:
    """Bytes of the first GPU in use, as the driver tells them, without a context of ours."""
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    assert lib.nvmlInit_v2() == 0
    assert lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0

    def read() -> int:
        assert lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
        return int(memory[2])

    return read
