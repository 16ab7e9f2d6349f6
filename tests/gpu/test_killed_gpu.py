"""kill -9 of what judges on a real GPU: its memory comes back, no process stays, and the next verdict is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError
from kb_ray.records import Status, Verdict
from tests.fixtures_bench import ADD_RELU, KERNEL, first

GIB = 1 << 30
SLACK = GIB // 2
"""Of the context of whatever has been started anew."""
HOLDS = first(
    "import time; hoard = torch.empty(8 << 30, dtype=torch.uint8, device=x.device).fill_(1)\n"
    "    torch.cuda.synchronize(); time.sleep(120)"
)
OWNER = """
import sys
from tests.gpu.test_killed_gpu import HOLDS, evaluator, judged
if __name__ == "__main__":
    own = evaluator()
    own.start()
    print(*own.pids().values(), flush=True)
    judged(own, HOLDS)
"""


def evaluator() -> Evaluator:
    return Evaluator(device="cuda", gpu="0", concurrency=2, name="killed")


def judged(own: Evaluator, code: str) -> Verdict:
    settings = BenchSettings(timeout_s=200.0, device="cuda", n_correctness=2, measure_performance=False)
    return own.evaluate(BenchRequest(request_id=f"k{len(code)}", task=ADD_RELU, kernel_code=code, settings=settings))


def until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@pytest.mark.parametrize("victim", ["judge", "candidates"])
def test_the_memory_of_a_candidate_is_back_after_a_kill_of_what_judges_it(victim: str, used: Callable[[], int]) -> None:
    own = evaluator()
    own.start()
    try:
        assert judged(own, KERNEL).status is Status.OK
        before = used()
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(judged, own, HOLDS)
            assert until(lambda: used() > before + 8 * GIB, 30)
            os.kill(own.pids()[victim], signal.SIGKILL)
            with pytest.raises(InfraError):
                running.result(30)
        assert until(lambda: used() <= before + SLACK, 5), (used() - before) / GIB
        with suppress(InfraError):
            judged(own, KERNEL)
        assert judged(own, KERNEL).status is Status.OK
    finally:
        own.stop()
    assert until(lambda: used() < before, 5)


def test_nothing_of_a_worker_that_is_killed_stays_on_the_gpu(used: Callable[[], int]) -> None:
    before = used()
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 3
        assert until(lambda: used() > before + 8 * GIB, 60)
        owner.kill()
    assert until(lambda: used() <= before, 5), (used() - before) / GIB
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 5)
