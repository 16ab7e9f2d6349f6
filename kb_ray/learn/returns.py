"""What each turn of a rollout is worth, seen from that turn on. Numbers only.

A return belongs to its turn and to no other: summing the returns of a rollout into one number would pay for failing
first, since a late success is then counted once for every turn before it.
"""

from __future__ import annotations

from collections.abc import Sequence


def discounted_returns(scores: Sequence[float], gamma: float) -> list[float]:
    """R_t = s_t + gamma * s_(t+1) + gamma^2 * s_(t+2) + ..., one for each of the `scores` of a rollout's turns.

    Kevin: Multi-Turn RL for Generating CUDA Kernels (Baronio and others, 2025), with gamma 0.4. ValueError unless
    0 <= gamma <= 1.
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be from 0 to 1, not {gamma}")
    returns = [0.0] * len(scores)
    later = 0.0
    for turn in reversed(range(len(scores))):
        later = scores[turn] + gamma * later
        returns[turn] = later
    return returns
