"""How long simulated work takes: drawn by name, so that a run can be repeated. Pure."""

from __future__ import annotations

import hashlib
import math
from statistics import NormalDist

SIGMA = 0.5
"""Of the logarithm: one in forty takes 2.7 times the median."""
_NORMAL = NormalDist()


def drawn(name: str, mean_s: float) -> float:
    """Seconds, lognormal around `mean_s`; the same for the same name."""
    share = (int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") + 0.5) / 2**48
    return mean_s * math.exp(SIGMA * _NORMAL.inv_cdf(share) - SIGMA * SIGMA / 2)
