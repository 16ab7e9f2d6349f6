"""The environment of the processes that an evaluator starts: scrubbed of credentials, tokens and addresses of ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from kb_ray.bench.gpu_node import GpuNode, gpu_node

_KEPT = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TZ", "OPENBLAS_CORETYPE", "KB_BENCH_CGROUP",
)  # fmt: skip


def environment_of(
    device: Literal["cpu", "cuda"], gpu: str | None, home: Path | None, thin: bool
) -> tuple[dict[str, str], GpuNode | None]:
    """Variables, and the file of the one GPU that they show. `thin`: one thread for libraries also on a GPU."""
    environment = {k: v for k, v in os.environ.items() if k in _KEPT}
    environment |= {"HOME": str(home), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    node = None
    if device == "cuda":
        gpu = gpu or os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        node = gpu_node(gpu)
        environment["CUDA_VISIBLE_DEVICES"] = node.name if node else gpu
        environment["CUDA_MODULE_LOADING"] = "LAZY"
        # One hardware queue a process: creating a context then takes half the time.
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    else:
        environment |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    if thin or device == "cpu":
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return environment, node
