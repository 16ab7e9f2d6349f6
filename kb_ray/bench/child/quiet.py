"""Whether a GPU is idle, as far as that shows from one's own process: other work delays one's own by whole time slices.

Candidates that are stopped may have kernels running still, one that hangs for as long as it lives.
"""

from __future__ import annotations

import time

import torch

PROBES = 12
SPACING_S = 0.0002
LATE_S = 0.0006
"""A kernel of one element takes some 20 microseconds to be launched and waited for; a time slice is over 1 ms."""

_one: list[torch.Tensor] = []


def is_quiet(probes: int = PROBES) -> bool:
    """Whether none of so many tiny kernels, a few hundred microseconds apart, had to wait for anybody."""
    if not _one:
        _one.append(torch.zeros(1, device="cuda"))
        _one[0].add_(1)
        torch.cuda.synchronize()
    for _ in range(probes):
        started = time.perf_counter()
        _one[0].add_(1)
        torch.cuda.synchronize()
        if time.perf_counter() - started > LATE_S:
            return False
        time.sleep(SPACING_S)
    return True
