"""B43 to B47: trouble of ours is never told as the candidate's, and no candidate meets what another one left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.cluster import local_gpus
from kb_ray.errors import InfraError
from kb_ray.prompts.feedback import feedback
from kb_ray.records import Status, Verdict
from tests.fixtures_bench import ADD_RELU, KERNEL, changed, first
from tests.threats.running import request

SLEEP_S, TIMEOUT_S = 3.0, 8.0


@pytest.fixture(scope="module")
def own() -> Iterator[Evaluator]:
    """An evaluator whose processes may be killed."""
    evaluator = Evaluator(device="cpu", concurrency=2, name="threats-infrastructure")
    evaluator.start()
    yield evaluator
    evaluator.stop()


@pytest.mark.skipif(not local_gpus(), reason="needs a CUDA GPU, and this machine shows none")
def test_an_illegal_access_leaves_the_gpu_as_it_was_B43() -> None:
    evaluator = Evaluator(device="cuda", gpu="0", concurrency=2, name="threats-gpu")
    wild = changed("out_ptr + offsets, tl.maximum(x + y, 0.0), mask=mask", "out_ptr + offsets + 2**34, x + y")
    try:
        for _ in range(3):
            assert evaluator.evaluate(request(wild, device="cuda")).status is Status.ILLEGAL_ACCESS
            assert evaluator.evaluate(request(KERNEL, device="cuda")).status is Status.OK
    finally:
        evaluator.stop()


def test_each_candidate_has_a_cache_of_its_own_B44(own: Evaluator) -> None:
    told = first("import os; raise ValueError(os.environ['TRITON_CACHE_DIR'])")
    places = [own.evaluate(request(told)).error for _ in range(2)]
    said = [error.message for error in places if error is not None]
    assert len(set(said)) == 2
    assert own.run_dir is not None
    assert all(str(own.run_dir) in message for message in said)
    assert not any(Path(message.partition(": ")[2]).exists() for message in said)


def test_a_broken_reference_is_told_to_nobody_B45(own: Evaluator) -> None:
    broken = ADD_RELU.model_copy(
        update={"reference_code": "def reference_impl(x, y):\n    raise OSError('No such file')\n"}
    )
    verdict = own.evaluate(request(KERNEL, broken))
    assert verdict.status is Status.INFRA_ERROR
    assert not verdict.valid
    assert not verdict.trusted
    with pytest.raises(ValueError, match="infra_error"):
        feedback(verdict, 1.0)


def test_waiting_for_a_place_is_not_counted_as_running_B46(own: Evaluator) -> None:
    slow = first(f"import time; time.sleep({SLEEP_S})")
    settings = {"n_correctness": 1, "timeout_s": TIMEOUT_S}
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda _: own.evaluate(request(slow, settings=settings)), range(8)))
    assert [verdict.status for verdict in verdicts] == [Status.OK] * 8
    assert time.monotonic() - started > TIMEOUT_S


def test_what_a_process_may_see_of_the_gpus_is_set_before_it_starts_B47(own: Evaluator) -> None:
    own.start()
    for role in ("candidates", "references"):
        at_start = Path(f"/proc/{own.pids()[role]}/environ").read_bytes().split(b"\0")
        assert b"CUDA_VISIBLE_DEVICES=" in at_start


@pytest.mark.parametrize("victim", ["judge", "candidates"])
def test_a_process_of_ours_that_dies_is_an_infra_error_and_a_later_try_is_right_B45(
    own: Evaluator, victim: str
) -> None:
    assert tried(own).status is Status.OK
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(own.evaluate, request(first("import time; time.sleep(30)")))
        time.sleep(1.0)
        os.kill(own.pids()[victim], signal.SIGKILL)
        with pytest.raises(InfraError):
            under_way.result(timeout=20)
    assert tried(own).status is Status.OK


def tried(evaluator: Evaluator) -> Verdict:
    """The verdict on the honest kernel, tried again as a pool does while the processes are replaced."""
    for _ in range(2):
        with suppress(InfraError):
            return evaluator.evaluate(request(KERNEL))
    return evaluator.evaluate(request(KERNEL))
