"""The state of a real GPU: what is read of it, what a canary costs, and that memory comes back after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kb_ray.bench.host import Evaluator, Quarantined
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Status, TensorSpec
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, changed, first

LARGE = ADD_RELU.model_copy(update={"input_shapes": {name: TensorSpec(shape=(4096, 1024)) for name in ("x", "y")}})
OUTSIDE = changed("out_ptr + offsets, tl.maximum(x + y, 0.0), mask=mask", "out_ptr + offsets + 2**33, x + y")
HOARD = first("hoard = torch.empty(8 << 30, dtype=torch.uint8, device=x.device).fill_(1)")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (HOARD, Status.OK),
        (HOARD.replace("fill_(1)", "fill_(1); import os; os.abort()"), Status.CRASH),
        (HOARD.replace("fill_(1)", "fill_(1); import time; time.sleep(60)"), Status.TIMEOUT),
    ],
    ids=["correct", "aborts", "hangs"],
)
def test_memory_is_back_within_two_seconds_of_the_verdict(
    verify_on_gpu: Verify, used: Callable[[], int], code: str, status: Status
) -> None:
    verify_on_gpu(KERNEL, LARGE)
    before = used()
    assert verify_on_gpu(code, LARGE, timeout_s=5.0).status is status
    end = time.monotonic() + 2
    while used() > before + (512 << 20) and time.monotonic() < end:
        time.sleep(0.05)
    assert used() <= before + (512 << 20)


def test_after_an_illegal_access_the_next_verdict_is_right_and_the_canary_costs_little(
    verify_on_gpu: Verify, gpu_evaluator: Evaluator
) -> None:
    verify_on_gpu(KERNEL, LARGE)
    before = gpu_evaluator.pids()
    started = time.monotonic()
    assert verify_on_gpu(KERNEL, LARGE).status is Status.OK
    usual = time.monotonic() - started
    assert verify_on_gpu(OUTSIDE, LARGE).status is Status.ILLEGAL_ACCESS
    started = time.monotonic()
    assert verify_on_gpu(KERNEL, LARGE).status is Status.OK
    assert time.monotonic() - started < usual + 2
    assert gpu_evaluator.pids() == before


def test_memory_that_a_stranger_takes_meanwhile_is_no_fault_of_the_gpu(verify_on_gpu: Verify) -> None:
    verify_on_gpu(KERNEL, LARGE)
    strangers = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    assert verify_on_gpu(OUTSIDE, LARGE).status is Status.ILLEGAL_ACCESS
    assert verify_on_gpu(KERNEL, LARGE).status is Status.OK
    del strangers
    torch.cuda.empty_cache()


def hoarder(seconds: float) -> str:
    """Takes all memory of the GPU, and keeps it so long."""
    return first(
        "hoard = []; import time\n"
        "    while torch.cuda.mem_get_info()[0] > 64 << 20:\n"
        "        size = min(torch.cuda.mem_get_info()[0] - (32 << 20), 8 << 30)\n"
        "        hoard.append(torch.empty(size, dtype=torch.uint8, device=x.device))\n"
        f"    time.sleep({seconds})\n"
        "    raise RuntimeError('enough')"
    )


def test_who_comes_after_a_hoarder_of_all_memory_is_judged_all_the_same(verify_on_gpu: Verify) -> None:
    verify_on_gpu(KERNEL, LARGE)
    codes = [hoarder(4)] + [f"# {i}\n{KERNEL}" for i in range(6)]
    with ThreadPoolExecutor(len(codes)) as threads:
        found = [threads.submit(verify_on_gpu, codes[0], LARGE)]
        time.sleep(2.5)
        found += [threads.submit(verify_on_gpu, code, LARGE) for code in codes[1:]]
        verdicts = [item.result() for item in found]
    assert [v.status for v in verdicts[1:]] == [Status.OK] * 6, [v.error for v in verdicts]
    assert any("repeated_alone" in v.evidence.flags for v in verdicts[1:])


def test_who_was_there_before_a_hoarder_of_all_memory_is_judged_all_the_same(verify_on_gpu: Verify) -> None:
    patient = first(
        "import time; time.sleep(0 if WAITED else 5); WAITED.append(1)\n"
        "    spare = torch.empty(1 << 30, dtype=torch.uint8, device=x.device)",
        f"WAITED = []\n{KERNEL}",
    )
    verify_on_gpu(KERNEL, LARGE)
    with ThreadPoolExecutor(2) as threads:
        early = threads.submit(verify_on_gpu, patient, LARGE)
        time.sleep(2)
        threads.submit(verify_on_gpu, hoarder(8), LARGE).result()
        verdict = early.result()
    assert (verdict.status, "repeated_alone" in verdict.evidence.flags) == (Status.OK, True), verdict.error


@pytest.fixture
def sick() -> Iterator[Evaluator]:
    evaluator = Evaluator(device="cuda", gpu="0", concurrency=2, name="sick", fault="once")
    yield evaluator
    evaluator.stop()


def test_a_gpu_that_fails_its_check_gives_no_verdict_until_it_is_started_anew(sick: Evaluator) -> None:
    def ask(number: int, code: str) -> Status:
        settings = BenchSettings(device="cuda", timeout_s=60)
        return sick.evaluate(
            BenchRequest(request_id=f"s{number}", task=LARGE, kernel_code=code, settings=settings)
        ).status

    assert ask(0, KERNEL) is Status.OK
    assert ask(1, OUTSIDE) is Status.ILLEGAL_ACCESS
    with pytest.raises(Quarantined, match="made for a test"):
        ask(2, KERNEL)
    sick.stop()
    sick.start()
    assert ask(3, KERNEL) is Status.OK
