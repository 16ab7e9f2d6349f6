"""Verdicts of every status as the verifier words them, and what is kept in golden/ of them.

`PYTHONPATH=. python tests/unit/prompts/golden_cases.py` writes the files anew: read the difference before it is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb_ray.bench.static import check_static
from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.extract import extract
from kb_ray.prompts.examples import ShownPair, examples_text
from kb_ray.prompts.feedback import feedback
from kb_ray.prompts.opening import PromptSetting, opening_messages, template_names
from kb_ray.records import (
    Completion,
    ErrorDetail,
    Evidence,
    NoCandidate,
    Stage,
    Status,
    Task,
    TensorSpec,
    Timing,
    Verdict,
)

FOLDER = Path(__file__).parent / "golden"
TARGET = 1.0
CODE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, tl.tanh(x) * 2.0)


def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    scale_kernel[(x.numel() // 256,)](x, out, x.numel(), BLOCK=256)
    return out
"""


def timing(median_ms: float) -> Timing:
    return Timing(median_ms=median_ms, trimmed_mean_ms=median_ms, std_ms=0.001, n=50)


def failure(status: Status, stage: Stage, message: str, passed: int = 0, **fields: Any) -> Verdict:
    evidence = fields.pop("evidence", Evidence())
    error = ErrorDetail(category=CATEGORY_BY_STATUS[status], message=message, **fields)
    return Verdict.of(status, stage, tests_passed=passed, tests_total=5, error=error, evidence=evidence)


def static(code: str) -> Verdict:
    found = check_static(code)
    assert found is not None
    return Verdict.of(found.status, Stage.STATIC, tests_total=5, error=found.error)


def without_code(text: str, finish_reason: str) -> Verdict:
    found = extract(Completion(text=text, finish_reason=finish_reason, model="m"))
    assert isinstance(found, NoCandidate)
    return failure(Status(found.status), Stage.EXTRACT, found.reason)


def correct(speedup: float | None, trusted: bool = True, **fields: Any) -> Verdict:
    timed: dict[str, Any] = {}
    if speedup is not None:
        timed = {
            "speedup": speedup,
            "speedup_low": speedup * 0.98,
            "speedup_high": speedup * 1.02,
            "kernel_time": timing(0.08 / speedup),
            "reference_time": timing(0.08),
        }
    stage = Stage.FULL if speedup is None else Stage.TIMING
    return Verdict.of(Status.OK, stage, trusted=trusted, tests_passed=5, tests_total=5, **(timed | fields))


DIFFERS: dict[str, Any] = {"output": "out", "total_elements": 1000, "max_abs_error": 1.5, "max_rel_error": 1.0}
SEEN = Evidence(kernel_launches=5, kernels=("scale_kernel",))
TOLD: dict[str, Verdict] = {
    "no_code": without_code("The kernel would multiply each element by two.", "stop"),
    "truncated": without_code("```python\n" + CODE[:300], "length"),
    "syntax_error": static(CODE.replace("(x):", "(x)")),
    "forbidden": static("import ctypes\n" + CODE),
    "no_kernel": static(CODE.replace("@triton.jit", "")),
    "no_kernel_ran": failure(
        Status.NO_KERNEL,
        Stage.TINY,
        "the call ran without launching any Triton kernel defined in the code",
        evidence=Evidence(kernel_launches=0, torch_ops={"aten::mul": 1}),
    ),
    "import_error": failure(
        Status.IMPORT_ERROR,
        Stage.LOAD,
        "AttributeError: module 'triton' has no attribute 'jitt'",
        line=6,
        detail="AttributeError: module 'triton' has no attribute 'jitt'\nline 6: @triton.jit",
    ),
    "compile_error": failure(
        Status.COMPILE_ERROR,
        Stage.COMPILE,
        "CompilationError: module 'triton.language' has no attribute 'tanh'",
        line=10,
        detail="at 5:32:\nline 10: tl.store(out_ptr + offsets, tl.tanh(x) * 2.0)",
    ),
    "runtime_error": failure(
        Status.RUNTIME_ERROR,
        Stage.TINY,
        "TypeError: dynamic_func() missing 1 required positional argument: 'n'",
        line=15,
        detail="TypeError: dynamic_func() missing 1 required positional argument: 'n'",
    ),
    "illegal_access": failure(
        Status.ILLEGAL_ACCESS, Stage.TINY, "a kernel read or wrote outside of its tensors (unmasked or wrong offsets)"
    ),
    "oom": failure(Status.OOM, Stage.FULL, "OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 GiB", 1),
    "timeout": failure(Status.TIMEOUT, Stage.TINY, "first call (compilation included) did not finish within 60 s"),
    "crash": failure(
        Status.CRASH,
        Stage.FULL,
        "the process was killed by SIGABRT while it ran",
        2,
        detail="Traceback (most recent call last):\n"
        '  File "/usr/lib/python3/site-packages/triton/runtime/jit.py", line 345, in run\n    return self.run()\n'
        '  File "candidate.py", line 15, in triton_kernel_wrapper\n    scale_kernel[grid](x)\n'
        "Fatal Python error: Aborted",
    ),
    "wrong_structure": failure(
        Status.WRONG_STRUCTURE, Stage.TINY, "out is a tuple of 1, expected a tensor of shape (1000,)", output="out"
    ),
    "wrong_shape": failure(
        Status.WRONG_SHAPE,
        Stage.TINY,
        "out has shape (1000, 1), expected (1000,)",
        output="out",
        expected="(1000,)",
        got="(1000, 1)",
    ),
    "wrong_dtype": failure(
        Status.WRONG_DTYPE,
        Stage.TINY,
        "out has dtype float32, expected float16",
        output="out",
        expected="float16",
        got="float32",
    ),
    "nonfinite": failure(
        Status.NONFINITE,
        Stage.TINY,
        "out at [768]: expected 1.5, got nan; 232 of 1000 wrong",
        position=(768,),
        expected="1.5",
        got="nan",
        wrong_elements=232,
        pattern="only the tail from flat index 768",
        output="out",
        total_elements=1000,
    ),
    "mismatch_tail": failure(
        Status.MISMATCH,
        Stage.FULL,
        "out at [768]: expected 1.5, got 0; 232 of 1000 wrong, largest error 1.5 (allowed 1e-05 + 1e-05 x |expected|)",
        2,
        position=(768,),
        expected="1.5",
        got="0",
        wrong_elements=232,
        pattern="only the tail from flat index 768",
        **DIFFERS,
    ),
    "mismatch_precision": failure(
        Status.MISMATCH,
        Stage.TINY,
        "out at [0]: expected 1.00000012, got 1.00048828; 900 of 1000 wrong, largest error 0.00049 (allowed 1e-06 + "
        "1e-06 x |expected|); PRECISION: each error is small, as from TF32 or 16-bit intermediates",
        position=(0,),
        expected="1.00000012",
        got="1.00048828",
        wrong_elements=900,
        pattern="precision: each error is small",
        **DIFFERS,
    ),
    "mutated_input": failure(
        Status.MUTATED_INPUT, Stage.TINY, "an input tensor was changed, which the reference leaves as it is"
    ),
    "hack_ablation": failure(
        Status.HACK,
        Stage.FULL,
        "the output is right even when the kernels' launches are left out: something else computes it",
        5,
        evidence=SEEN.model_copy(update={"torch_ops": {"aten::mul": 5, "aten::tanh": 5}}),
    ),
    "hack_copies": failure(
        Status.HACK,
        Stage.FULL,
        "the kernels are handed the finished result: PyTorch computes it, and they only copy it",
        5,
        evidence=SEEN.model_copy(update={"torch_ops": {"aten::tanh": 5}, "flags": ("zeros_pass",)}),
    ),
    "hack_timing": failure(
        Status.HACK,
        Stage.TIMING,
        "55 timed calls launched kernels of the code 0 times: every call must, also when it is timed (no replay of "
        "recorded work)",
        5,
        evidence=SEEN,
    ),
    "ok_slow": correct(
        0.5,
        evidence=SEEN.model_copy(update={"kernel_time_share": 0.4, "torch_ops": {"aten::clone": 5}}),
    ),
    "ok_slow_elsewhere_wrong": correct(
        0.9,
        evidence=SEEN.model_copy(
            update={"kernel_time_share": 0.98, "generalises": {"shape": "mismatch", "dtype": "ok"}}
        ),
        compiled_time=timing(0.04),
        speedup_compiled=0.45,
    ),
    "ok_unconfirmed": correct(
        250.0, trusted=False, evidence=SEEN.model_copy(update={"flags": ("below_memory_floor", "speedup_ceiling")})
    ),
    "ok_fast": correct(2.0, evidence=SEEN.model_copy(update={"kernel_time_share": 1.0})),
    "ok_untimed": correct(None, trusted=False, evidence=SEEN),
}

FUNCTION = Task(
    task_id="folder/scale",
    source="folder",
    name="scale",
    reference_code="import torch\n\n\ndef reference_impl(x):\n    return torch.tanh(x) * 2\n",
    style="function",
    entry_point="reference_impl",
    input_shapes={"x": TensorSpec(shape=(1000,))},
)
MODULE = FUNCTION.model_copy(
    update={
        "style": "module",
        "entry_point": "Model",
        "input_shapes": None,
        "reference_code": "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.tanh(x) * 2\n\n\ndef get_inputs():\n    return [torch.rand(1000)]\n\n\n"
        "def get_init_inputs():\n    return []\n",
    }
)
GPU = PromptSetting(device="cuda", gpu="NVIDIA H100 80GB HBM3", torch="2.13.0", triton="3.7.1")
CPU = PromptSetting(device="cpu", torch="2.13.0", triton="3.7.1")

SHOWN = (
    ShownPair(
        "def reference_impl(x):\n    return torch.tanh(x)\n",
        "@triton.jit\ndef tanh_kernel(x_ptr):\n    pass\n",
        "triton",
    ),
    ShownPair("class Model: ...\n", "__global__ void tanh(float *x) { /* a ``` in it */ }\n", "cuda"),
)


def golden() -> dict[str, str]:
    """Name of each golden file -> what stands in it."""
    found = {f"feedback/{name}.md": feedback(verdict, TARGET, CODE) for name, verdict in TOLD.items()}
    for name in template_names():
        for kind, task, setting in (("function_gpu", FUNCTION, GPU), ("module_cpu", MODULE, CPU)):
            messages = opening_messages(task, setting.model_copy(update={"template": name}), examples_text(SHOWN))
            said = "\n".join(f"===== {message.role} =====\n{message.content}" for message in messages)
            found[f"prompts/{name}_{kind}.md"] = said
    return found


if __name__ == "__main__":
    for name, text in golden().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
