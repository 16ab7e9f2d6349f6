"""Each way a candidate can end gets its own status, from real processes on the Triton interpreter."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import judged
from kb_ray.records import Stage, Status, Task, TensorSpec
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, changed, first

FAILURES = {
    "multiplies instead": (changed("tl.maximum(x + y, 0.0)", "x * y"), Status.MISMATCH, Stage.TINY),
    "far offset, no mask": (
        changed("out_ptr + offsets, tl.maximum(x + y, 0.0), mask=mask", "out_ptr + offsets + 2**33, x + y"),
        Status.ILLEGAL_ACCESS,
        Stage.TINY,
    ),
    "reads one block past the end": (
        changed("x = tl.load(x_ptr + offsets, mask=mask)", "x = tl.load(x_ptr + offsets + 4096)"),
        Status.ILLEGAL_ACCESS,
        Stage.TINY,
    ),
    "unknown tl function": (changed("tl.maximum(x + y, 0.0)", "tl.nonesuch(x)"), Status.COMPILE_ERROR, Stage.COMPILE),
    "python error": (first("x = x.nonesuch()"), Status.RUNTIME_ERROR, Stage.TINY),
    "import error": (changed("import torch\n", "import torch\nimport nonesuch\n"), Status.IMPORT_ERROR, Stage.LOAD),
    "raises at import": (KERNEL + "\nraise ValueError('at import')\n", Status.IMPORT_ERROR, Stage.LOAD),
    "syntax error": (KERNEL + "\ndef broken(:\n", Status.SYNTAX_ERROR, Stage.STATIC),
    "no kernel in the file": ("def triton_kernel_wrapper(x, y):\n    return x\n", Status.NO_KERNEL, Stage.STATIC),
    "kernel never launched": (first("return torch.relu(x + y)"), Status.NO_KERNEL, Stage.TINY),
    "harness internals": (changed("import torch\n", "import torch\nimport gc\n"), Status.FORBIDDEN, Stage.STATIC),
    "wrong shape": (changed("return out", "return out.reshape(-1)"), Status.WRONG_SHAPE, Stage.TINY),
    "wrong dtype": (changed("return out", "return out.half()"), Status.WRONG_DTYPE, Stage.TINY),
    "tuple for a tensor": (changed("return out", "return out, out"), Status.WRONG_STRUCTURE, Stage.TINY),
    "None": (changed("return out", "return None"), Status.WRONG_STRUCTURE, Stage.TINY),
    "a generator": (changed("return out", "return (t for t in [out])"), Status.WRONG_STRUCTURE, Stage.TINY),
    "NaN": (changed("tl.maximum(x + y, 0.0)", "(x + y) / 0.0 * 0.0"), Status.NONFINITE, Stage.TINY),
    "writes its input": (changed("return out", "x.zero_()\n    return out"), Status.MUTATED_INPUT, Stage.TINY),
    "os.abort": (first("import os; os.abort()"), Status.CRASH, Stage.TINY),
    "os._exit(0)": (first("import os; os._exit(0)"), Status.CRASH, Stage.TINY),
    "SystemExit": (first("raise SystemExit(0)"), Status.RUNTIME_ERROR, Stage.TINY),
    "KeyboardInterrupt": (first("raise KeyboardInterrupt"), Status.RUNTIME_ERROR, Stage.TINY),
    "kills itself": (first("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), Status.CRASH, Stage.TINY),
    "allocates without end": (first("hoard = torch.empty(1 << 40)"), Status.OOM, Stage.TINY),
    "a partly written output": (changed("mask = offsets < n", "mask = offsets < n - 1"), Status.NONFINITE, Stage.TINY),
    "right only for the inputs as drawn": (
        changed("    return out", "    return out if x.abs().max() < 5.5 and not x.sum() > 3e3 else -out"),
        Status.MISMATCH,
        Stage.FULL,
    ),
    "the same buffer for every call": (
        changed("    out = torch.empty_like(x)", "    out = KEEP.setdefault(0, torch.empty_like(x))") + "\nKEEP = {}\n",
        Status.MISMATCH,
        Stage.FULL,
    ),
    "the first output for every call": (
        changed("    return out", "    return KEEP.setdefault(0, out)") + "\nKEEP = {}\n",
        Status.MISMATCH,
        Stage.FULL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_has_its_status_and_stage(verify: Verify, name: str) -> None:
    code, status, stage = FAILURES[name]
    verdict = verify(code, n_correctness=5)
    assert (verdict.status, verdict.stage) == (status, stage), verdict.error
    assert verdict.error is not None
    assert verdict.error.message
    assert verdict.judged == judged(ADD_RELU, code)
    assert not verdict.correct
    assert not verdict.trusted
    assert not verdict.timed


def test_a_correct_kernel_is_ok_untimed_and_untrusted_on_a_cpu(verify: Verify) -> None:
    verdict = verify(KERNEL, n_correctness=5)
    assert verdict.status is Status.OK, verdict.error
    assert (verdict.tests_passed, verdict.tests_total) == (5, 5)
    assert verdict.judged == judged(ADD_RELU, KERNEL)
    assert verdict.evidence.kernel_launches == 5
    assert verdict.evidence.kernels == ("add_relu_kernel",)
    assert verdict.fast_0
    assert not verdict.timed
    assert not verdict.trusted
    assert verdict.speedup is verdict.fast_1 is verdict.fast_2 is None
    assert verdict.env.device == "cpu"


def test_a_mismatch_says_where_and_how_much(verify: Verify) -> None:
    verdict = verify(changed("tl.maximum(x + y, 0.0)", "tl.maximum(x + y, 0.0) + tl.where(offsets == 37, 1.0, 0.0)"))
    assert verdict.error is not None
    assert verdict.error.position == (1, 4)
    assert verdict.error.wrong_elements == 1
    assert verdict.error.max_abs_error == pytest.approx(1.0, rel=1e-3)


def test_half_precision_inside_of_a_float32_task_is_told_as_precision_B02(verify: Verify) -> None:
    verdict = verify(changed("tl.maximum(x + y, 0.0)", "tl.maximum(x.to(tl.float16) + y.to(tl.float16), 0.0)"))
    assert verdict.status is Status.MISMATCH
    assert verdict.error is not None
    assert verdict.error.pattern is not None
    assert verdict.error.pattern.startswith("precision: ")
    assert "PRECISION" in verdict.error.message


def test_a_compile_error_names_the_line(verify: Verify) -> None:
    verdict = verify(changed("tl.maximum(x + y, 0.0)", "tl.nonesuch(x)"))
    assert verdict.error is not None
    assert verdict.error.line == 13
    assert "tl.nonesuch(x)" in verdict.error.detail


def test_a_crash_is_seen_within_a_second_and_a_hang_at_its_timeout(verify: Verify) -> None:
    verify(KERNEL)
    started = time.monotonic()
    assert verify(first("import os; os.abort()")).status is Status.CRASH
    crashed = time.monotonic()
    hung = verify(first("while True: pass"), timeout_s=2.0)
    assert hung.status is Status.TIMEOUT
    assert 2.0 <= time.monotonic() - crashed < 12
    # Seen by the process's end, not by its timeout of 30 s; the bound leaves room for a busy machine.
    assert crashed - started < 10


def test_torch_operators_are_reported(verify: Verify) -> None:
    verdict = verify(changed("return out", "return out + torch.zeros_like(out).exp() - 1"))
    assert verdict.status is Status.OK
    assert verdict.evidence.torch_ops == {"exp": 3, "add": 3, "sub": 3}


def test_a_reference_that_raises_is_not_the_candidates_failure(verify: Verify) -> None:
    task = ADD_RELU.model_copy(update={"reference_code": "def reference_impl(x, y):\n    raise ValueError('broken')\n"})
    verdict = verify(KERNEL, task)
    assert verdict.status is Status.INFRA_ERROR
    assert verdict.error is not None
    assert "broken" in verdict.error.message


def test_a_reference_that_kills_its_process_spoils_no_other_task(verify: Verify) -> None:
    task = ADD_RELU.model_copy(update={"reference_code": "import os\ndef reference_impl(x, y):\n    os.abort()\n"})
    assert verify(KERNEL, task).status is Status.INFRA_ERROR
    assert verify(KERNEL).status is Status.OK


def test_a_random_reference_is_flagged(verify: Verify) -> None:
    code = "import torch\ndef reference_impl(x, y):\n    return torch.rand_like(x)\n"
    verdict = verify(KERNEL, ADD_RELU.model_copy(update={"reference_code": code}))
    assert "reference_not_deterministic" in verdict.evidence.flags


def test_a_call_that_needs_a_gpu_is_not_the_candidates_failure_on_a_cpu(verify: Verify) -> None:
    verdict = verify(first("x = x.cuda()"))
    assert verdict.status is Status.INFRA_ERROR
    assert verdict.error is not None
    assert "needs a GPU" in verdict.error.message


def test_no_program_can_be_started(verify: Verify) -> None:
    # Static rules refuse spawning by name; what slips past them finds nothing that may be executed.
    spawn = "import os; getattr(os, ''.join(['posix_', 'spawn']))('/bin/sleep', ['sleep', '30'], {})"
    verdict = verify(first(spawn))
    assert verdict.error is not None
    assert "PermissionError" in verdict.error.message


def test_a_fork_of_the_candidate_is_ended_with_it(verify: Verify) -> None:
    verdict = verify(first("import os, time; (getattr(os, ''.join(['fo', 'rk']))() == 0) and time.sleep(3600)"))
    assert verdict.status is Status.OK, verdict.error
    time.sleep(0.2)
    sleeping = [
        p for p in Path("/proc").glob("[0-9]*/cmdline") if "child.zygote" in _read(p) and _parent_is_init(p.parent)
    ]
    assert sleeping == []


def test_no_zombie_is_left_where_process_1_would_not_reap_it(evaluator: Evaluator, verify: Verify) -> None:
    fork = first("import os; ids = [getattr(os, 'fo' + 'rk')() for _ in range(4)]; all(ids) or os._exit(0)")
    verify(fork)
    ours = str(evaluator.pids()["candidates"])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        fields = [_read(path).rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
        zombies = [f for f in fields if f[:2] == ["Z", ours]]
        if not zombies:
            return
        time.sleep(0.05)
    pytest.fail(f"zombies of the zygote: {zombies}")


def test_a_flood_of_output_is_bounded_and_harmless(verify: Verify) -> None:
    assert verify(first("print('x' * (32 << 20))")).status is Status.OK


def test_a_forged_answer_does_not_make_a_verdict(verify: Verify) -> None:
    forge = (
        "import os, socket, struct\n"
        "    for fd in range(3, 64):\n"
        "        try:\n"
        "            os.write(fd, struct.pack('<IBHQ', 0x6B625231, 40, 0, 3) + b'\\x01\\x0a\\x00')\n"
        "        except OSError:\n"
        "            pass\n"
        "    return x"
    )
    verdict = verify(first(forge))
    assert not verdict.correct
    assert verify(KERNEL).status is Status.OK


def test_what_the_source_alone_decides_touches_no_process(evaluator: Evaluator) -> None:
    idle = Evaluator(device="cpu", name="never-started")
    from kb_ray.bench.protocol import BenchRequest

    verdict = idle.evaluate(BenchRequest(request_id="s", task=ADD_RELU, kernel_code="def broken(:\n"))
    assert verdict.status is Status.SYNTAX_ERROR
    assert idle.pids() == {}


def test_integer_inputs_and_tuple_outputs(verify: Verify) -> None:
    task = Task(
        task_id="folder/split", source="folder", name="split", style="function", entry_point="reference_impl",
        reference_code="def reference_impl(x):\n    return x * 2, {'odd': x % 2 == 1}\n",
        input_shapes={"x": TensorSpec(shape=(257,), dtype="int64")},
    )  # fmt: skip
    code = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n)
    tl.store(out_ptr + o, x * 2, mask=o < n)

def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    kernel[(1,)](x, out, x.numel(), BLOCK=512)
    return out, {"odd": x % 2 == 1}
"""
    assert verify(code, task).status is Status.OK
    wrong = verify(changed("x * 2", "x * 2 + (o == 256)", code), task)
    assert wrong.status is Status.MISMATCH
    assert wrong.error is not None
    assert wrong.error.output == "out[0]"
    assert wrong.error.position == (256,)


def test_autotune_with_several_configurations_runs_on_a_cpu(verify: Verify) -> None:
    tuned = changed(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 1024})], key=['n'])\n@triton.jit",
    )
    tuned = changed("out, n, BLOCK=1024)", "out, n)", tuned)
    tuned = changed("(triton.cdiv(n, 1024),)", "lambda meta: (triton.cdiv(n, meta['BLOCK']),)", tuned)
    assert verify(tuned).status is Status.OK


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _parent_is_init(proc: Path) -> bool:
    try:
        return (proc / "stat").read_text().rpartition(")")[2].split()[1] == "1"
    except OSError:
        return False
