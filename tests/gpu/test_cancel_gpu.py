"""Giving up a request on a real GPU, checked or timed: the card is free again and nobody else fails."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kb_ray.bench.host import Evaluator, GivenUp
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Status, TensorSpec
from tests.fixtures_bench import ADD_RELU, KERNEL, changed, first

LARGE = ADD_RELU.model_copy(update={"input_shapes": {name: TensorSpec(shape=(4096, 1024)) for name in ("x", "y")}})
SPIN = changed("    tl.store", "    while tl.load(out_ptr) != 1e30:\n        tl.store(out_ptr, 0.0)\n    tl.store")
CALLS = "import os; n_calls = globals().get('calls', 0); globals()['calls'] = n_calls + 1"
WAITS_WHEN_TIMED = first(f"{CALLS}; import time; time.sleep(600 if n_calls > 20 else 0)")


def request(name: str, code: str) -> BenchRequest:
    settings = BenchSettings(n_correctness=2, timeout_s=300, device="cuda")
    return BenchRequest(request_id=name, task=LARGE, kernel_code=code, settings=settings)


@pytest.mark.parametrize(
    "code", [SPIN, first("import time; time.sleep(600)"), WAITS_WHEN_TIMED], ids=["kernel-spins", "call", "timing"]
)
def test_a_request_that_is_given_up_frees_the_gpu_and_spoils_no_neighbour(gpu_evaluator: Evaluator, code: str) -> None:
    assert gpu_evaluator.evaluate(request("before", KERNEL)).status is Status.OK
    judge = gpu_evaluator.pids()["judge"]
    with ThreadPoolExecutor(4) as threads:
        running = threads.submit(gpu_evaluator.evaluate, request("given-up", code))
        neighbours = [threads.submit(gpu_evaluator.evaluate, request(f"n{i}", KERNEL)) for i in range(3)]
        time.sleep(8)
        began = time.monotonic()
        assert gpu_evaluator.cancel("given-up")
        with pytest.raises(GivenUp):
            running.result(30)
        assert time.monotonic() - began < 15
        assert [neighbour.result(120).status for neighbour in neighbours] == [Status.OK] * 3
    assert gpu_evaluator.evaluate(request("after", KERNEL)).status is Status.OK
    assert gpu_evaluator.pids()["judge"] == judge
    assert gpu_evaluator.run_dir is not None
    assert list((gpu_evaluator.run_dir / "candidates" / "groups").iterdir()) == []
