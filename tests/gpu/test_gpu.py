"""Verdicts on a real GPU: the four turns, faults that spoil nobody else, clocks that agree."""

from __future__ import annotations

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.extract import extract
from kb_ray.model.builtin_script import builtin_script
from kb_ray.records import Candidate, Completion, Stage, Status, Task, TensorSpec, Verdict
from kb_ray.tasks import Sources, plan
from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, changed, first
from tests.fixtures_run import Command

LARGE = ADD_RELU.model_copy(update={"input_shapes": {name: TensorSpec(shape=(4096, 1024)) for name in ("x", "y")}})


@pytest.fixture(scope="session")
def add_relu() -> Task:
    tasks = plan(Sources(specs=("builtin:1",)), on_skip=print)
    return next(task for task, _ in tasks if task.task_id == "builtin/1/add_relu")


def scripted(task: Task, turn: int) -> str:
    """The code of the built-in script's answer at a turn (-1: its last)."""
    line = next(line for line in builtin_script() if line.matches(task.task_id))
    text, _, finish = line.answer(turn % len(line.turns))
    candidate = extract(Completion(text=text, finish_reason=finish, model="scripted"))
    assert isinstance(candidate, Candidate)
    return candidate.code


def test_the_four_turns_of_the_script(verify_on_gpu: Verify, add_relu: Task) -> None:
    wrong, outside, slow, fast = [verify_on_gpu(scripted(add_relu, i), add_relu) for i in range(4)]
    assert wrong.status is Status.MISMATCH
    assert outside.status is Status.ILLEGAL_ACCESS
    assert (slow.status, slow.stage) == (Status.OK, Stage.TIMING), slow.error
    assert (fast.status, fast.stage) == (Status.OK, Stage.TIMING), fast.error
    assert slow.speedup is not None
    assert fast.speedup is not None
    assert slow.speedup < 1 < fast.speedup
    assert slow.trusted
    assert fast.trusted
    assert (slow.fast_1, fast.fast_1) == (False, True)
    assert fast.kernel_time is not None
    assert fast.kernel_time.n == len(fast.kernel_time.samples_ms) >= 50
    assert fast.env.gpu


def test_without_timing_right_is_told_from_wrong_and_nothing_else(gpu_evaluator: Evaluator, add_relu: Task) -> None:
    settings = BenchSettings(device="cuda", measure_performance=False)
    for turn, status in ((0, Status.MISMATCH), (2, Status.OK)):
        request = BenchRequest(
            request_id=f"untimed-{turn}", task=add_relu, kernel_code=scripted(add_relu, turn), settings=settings
        )
        verdict = gpu_evaluator.evaluate(request)
        assert verdict.status is status, verdict.error
        assert (verdict.timed, verdict.speedup, verdict.fast_1) == (False, None, None)
        assert verdict.env.gpu
    assert (verdict.stage, verdict.trusted) == (Stage.FULL, True)


def test_an_illegal_access_spoils_no_other_verdict(verify_on_gpu: Verify) -> None:
    outside = changed("out_ptr + offsets, tl.maximum(x + y, 0.0), mask=mask", "out_ptr + offsets + 2**33, x + y")
    with ThreadPoolExecutor(4) as threads:
        codes = [KERNEL, outside, KERNEL, outside, KERNEL, outside, KERNEL]
        verdicts = list(threads.map(lambda code: verify_on_gpu(code, LARGE), codes))
    expected = [Status.OK if code == KERNEL else Status.ILLEGAL_ACCESS for code in codes]
    assert [verdict.status for verdict in verdicts] == expected, [v.error for v in verdicts]


FAILURES = {
    "abort": (first("import os; os.abort()"), Status.CRASH),
    "exit": (first("import os; os._exit(0)"), Status.CRASH),
    "unknown function": (changed("tl.maximum(x + y, 0.0)", "tl.nonesuch(x)"), Status.COMPILE_ERROR),
    "no power of two": (changed("BLOCK=1024)", "BLOCK=1000)"), Status.COMPILE_ERROR),
    "no launch": (first("return torch.relu(x + y)"), Status.NO_KERNEL),
    "too much memory": (first("hoard = torch.empty(1 << 45, device=x.device)"), Status.OOM),
    "dtype": (changed("return out", "return out.half()"), Status.WRONG_DTYPE),
    "unwritten": (changed("mask = offsets < n", "mask = offsets < n - 1"), Status.NONFINITE),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_have_their_status(verify_on_gpu: Verify, name: str) -> None:
    code, status = FAILURES[name]
    verdict = verify_on_gpu(code, LARGE)
    assert verdict.status is status, verdict.error


def test_a_kernel_that_hangs_on_the_gpu_is_timed_out_and_the_next_verdict_is_right(verify_on_gpu: Verify) -> None:
    spin = changed(
        "    mask = offsets < n\n",
        "    mask = offsets < n\n    while tl.load(out_ptr) != 1e30:\n        tl.store(out_ptr, 0.0)\n",
    )
    verdict = verify_on_gpu(spin, LARGE, timeout_s=5.0)
    assert verdict.status is Status.TIMEOUT, verdict.error
    assert verify_on_gpu(KERNEL, LARGE).status is Status.OK


def test_an_in_place_reference_is_timed_on_fresh_values(verify_on_gpu: Verify) -> None:
    task = LARGE.model_copy(
        update={"reference_code": "import torch\ndef reference_impl(x, y):\n    return x.add_(y).relu_()\n"}
    )
    verdict = verify_on_gpu(KERNEL, task)
    assert (verdict.status, verdict.stage) == (Status.OK, Stage.TIMING), verdict.error
    in_place = changed("    out = torch.empty_like(x)", "    out = x")
    assert verify_on_gpu(in_place, task).stage is Stage.TIMING


def test_every_builtin_task_is_solved_by_its_last_answer(verify_on_gpu: Verify) -> None:
    tasks = [task for task, _ in plan(Sources(specs=("builtin",)), on_skip=print)]

    def verdict(task: Task) -> Verdict:
        return verify_on_gpu(scripted(task, -1), task)

    with ThreadPoolExecutor(4) as threads:
        verdicts = dict(zip([t.task_id for t in tasks], threads.map(verdict, tasks), strict=True))
    assert {name: (v.status, v.error) for name, v in verdicts.items() if v.status is not Status.OK} == {}


def test_nothing_is_left_on_the_gpu(gpu_evaluator: Evaluator) -> None:
    gpu_evaluator.stop()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        listed = subprocess.run(
            ["nvidia-smi", "-i", "0", "--query-compute-apps=pid", "--format=csv,noheader"],
            capture_output=True, text=True,
        )  # fmt: skip
        # What other tests have drawn with is in this process.
        if not {*listed.stdout.split()} - {str(os.getpid())}:
            return
        time.sleep(0.2)
    pytest.fail(f"processes left on the GPU: {listed.stdout}")


def test_the_run_ends_in_success_fast(tmp_path: Path) -> None:
    output = str(tmp_path / "out")
    code, out = Command({"RAY_ADDRESS": "local"}).run(
        ["--tasks", "builtin:1", "--model", "scripted", "--multi-turn", "--output", output, "--timeout", "30"]
    )
    print(out)
    assert code == 0, out
    episode = next(e for e in episodes(open_store(output)) if e.task.task_id == "builtin/1/add_relu")
    print(json.dumps([[t.verdict.status, t.verdict.speedup] for t in episode.turns]))
    assert [t.verdict.status for t in episode.turns] == ["mismatch", "illegal_access", "ok", "ok"]
    assert episode.stop_reason == "success_fast"
    assert episode.best_turn == 3
