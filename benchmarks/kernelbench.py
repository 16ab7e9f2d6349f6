"""KernelBench's own evaluation on the same kernels, for comparison: run from a checkout, never copied.

As its batch script does, each kernel gets a process of its own. Packages that it imports and that evaluation
does not need (clients of model services) are replaced by empty modules where they are missing, which makes
it faster than it is as shipped.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import candidates

_RUN = """
import json, sys, types, torch
for name in ("openai", "litellm", "dotenv", "together", "google", "anthropic", "tqdm", "tomli", "tabulate", "pydra",
             "datasets", "transformers", "requests", "numpy", "einops", "modal"):
    try:
        __import__(name)
    except ImportError:
        module = types.ModuleType(name)
        module.__getattr__ = lambda attribute: (lambda *a, **k: None)
        sys.modules[name] = module
given = json.loads(sys.stdin.read())
sys.path.insert(0, given["root"] + "/src")
from kernelbench.eval import eval_kernel_against_ref
result = eval_kernel_against_ref(
    given["reference"], given["kernel"], num_correct_trials=5, num_perf_trials=given["trials"],
    measure_performance=True, backend="triton", device=torch.device("cuda:0"), verbose=False,
)
print(json.dumps({"compiled": bool(result.compiled), "correct": bool(result.correctness)}))
"""


def measure(root: Path, trials: int = 50) -> dict[str, Any]:
    """Seconds a kernel: four small ones, one of KernelBench's own size."""
    small = [_one(root, candidates.SMALL, i, trials) for i in range(4)]
    giant = [_one(root, candidates.GIANT, 9, trials)]
    return {
        "commit": _commit(root),
        "small_seconds": [round(s, 2) for s, _ in small],
        "small_per_minute": 60 / statistics.mean(s for s, _ in small),
        "small_results": [r for _, r in small],
        "giant_seconds": giant[0][0],
        "giant_result": giant[0][1],
    }


def _one(root: Path, shape: tuple[int, int], number: int, trials: int) -> tuple[float, str]:
    given = {
        "root": str(root.resolve()), "reference": candidates.relu_module(shape).reference_code,
        "kernel": candidates.right_module(number), "trials": trials,
    }  # fmt: skip
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _RUN], input=json.dumps(given), capture_output=True, text=True, timeout=400
    )  # fmt: skip
    return time.perf_counter() - started, (done.stdout.strip() or done.stderr.strip()[-300:]).splitlines()[-1]


def _commit(root: Path) -> str:
    asked = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"
