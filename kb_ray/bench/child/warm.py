"""Prepares a GPU judge: a CUDA context, and a Triton cache with the driver stubs that every child needs.

Compiling those stubs takes Triton most of a second; candidates get a private copy of the result, so
that none of them can plant anything for the next.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch


def warm_cuda(run_dir: Path) -> Path:
    """Initialise CUDA, launch one kernel, and return the folder of the Triton cache it filled."""
    cache = run_dir / "triton-template"
    cache.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    torch.cuda.init()
    from kb_ray.bench.child.canary import double

    x = torch.arange(4096, dtype=torch.float32, device="cuda")
    out = torch.empty_like(x)
    double[(4,)](x, out, 4096, BLOCK=1024)
    torch.cuda.synchronize()
    if not torch.equal(out, x * 2):
        raise RuntimeError("this GPU gave a wrong answer to a trivial kernel")
    return cache
