"""What a run's samples amount to: speed, memory, cost per episode, idle actors, waiting. Pure numbers.

Rates are over the sustained part: from when all actors were ready to when the first of the last episodes had begun.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Span = tuple[float, float]
TURNS = 4


def sustained(samples: Sequence[Row], actors: int) -> list[Row]:
    """Samples while all actors were there and there was more to begin: the ramp and the end say nothing of speed."""
    full = [row for row in samples if row["capacity"] >= actors]
    if not full:
        return []
    busiest = max(row["generating"] + row["waiting_on_bench"] for row in full)
    loaded = [row for row in full if row["generating"] + row["waiting_on_bench"] >= 0.9 * busiest]
    return [row for row in full if loaded[0]["t"] <= row["t"] <= loaded[-1]["t"]]


def rate(samples: Sequence[Row], of: str) -> float:
    """Of a counter, a second."""
    first, last = samples[0], samples[-1]
    return (last[of] - first[of]) / max(last["t"] - first["t"], 1e-9)


def memory(samples: Sequence[Row]) -> dict[str, float]:
    """Peaks of the run's halves, by episodes, MiB, and the second over the first."""
    half = samples[-1]["finished"] / 2
    first = max(row["rss_mib"] for row in samples if row["finished"] <= half)
    second = max(row["rss_mib"] for row in samples if row["finished"] > half)
    return {"first_half_mib": first, "second_half_mib": second, "growth": second / first - 1}


def per_episode(samples: Sequence[Row], around: int, window: int) -> dict[str, float] | None:
    """Wall and CPU seconds of the driver for each of the episodes up to the given one; None without enough samples.

    An episode is four verdicts here: of those in flight some have had theirs before the window, others have not yet.
    """
    inside = [row for row in samples if TURNS * (around - window) <= row["verdicts"] <= TURNS * around]
    if len(inside) < 2 or inside[-1]["verdicts"] == inside[0]["verdicts"]:
        return None
    count = (inside[-1]["verdicts"] - inside[0]["verdicts"]) / TURNS
    return {
        "wall_s": (inside[-1]["t"] - inside[0]["t"]) / count,
        "cpu_s": (inside[-1]["cpu_s"] - inside[0]["cpu_s"]) / count,
        "episodes": count,
    }


def waited(samples: Sequence[Row]) -> list[Span]:
    """When requests waited for a worker: from look to look, where both saw some."""
    looks = [look for row in samples for look in row["looks"]]
    return [(a, b) for a, b in pairwise(looks) if a > 0 and b > 0]


def idle_share(spans: Sequence[Sequence[Span]], windows: Sequence[Span]) -> dict[str, float] | None:
    """Of the time in which work waited: share that actors were not at work, over all and of the idlest one."""
    merged = _merged(windows)
    total = sum(end - begin for begin, end in merged)
    if not spans or total <= 0:
        return None
    shares = [1 - sum(_overlap(own, merged)) / total for own in spans]
    return {"mean": sum(shares) / len(shares), "most": max(shares), "waited_s": total}


def longest_verdict(samples: Sequence[Row], spans: Sequence[Sequence[Span]], actors: int) -> dict[str, float] | None:
    """Seconds of the longest verdict, waiting included, that was asked for while all actors stood; and what it may be.

    Who comes first is served first: before a request are at most all others in flight, spread over the actors, and
    each takes at most as long as the longest did. One more may stand at a worker that took it ahead.
    """
    stood = [row for row in samples if row["capacity"] >= actors]
    took = [took for row in stood for asked, took in row["ended"] if asked >= stood[0]["t"]]
    if not took or not any(spans):
        return None
    one = max(end - begin for own in spans for begin, end in own)
    waiting = max(row["waiting_on_bench"] for row in stood)
    return {"longest_s": max(took), "at_most_s": (math.ceil(waiting / actors) + 1) * one, "one_s": one}


def _merged(windows: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for begin, end in sorted(windows):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _overlap(spans: Sequence[Span], windows: Sequence[Span]) -> list[float]:
    """Lengths of what both have in common; both are disjoint within themselves."""
    found, place = [], 0
    for begin, end in sorted(map(tuple, spans)):
        while place < len(windows) and windows[place][1] <= begin:
            place += 1
        at = place
        while at < len(windows) and windows[at][0] < end:
            found.append(min(end, windows[at][1]) - max(begin, windows[at][0]))
            at += 1
    return found


def in_flight(samples: Sequence[Row]) -> int:
    """Episodes that were with the model or the bench at once, at most."""
    return max(int(row["waiting_on_model"] + row["waiting_on_bench"]) for row in samples)
