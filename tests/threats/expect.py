"""What a verdict may say of an attack that is not simply refused. Pure; knows no case."""

from __future__ import annotations

from kb_ray.records import Status, Verdict
from kb_ray.tasks.quality import PASSES_KERNELBENCH

_NOTES = frozenset({"shared", "repeated_alone", "compile_failed", *PASSES_KERNELBENCH})
"""Flags that take no trust away."""


def reported(verdict: Verdict) -> bool:
    """Right, but the torch operators that did the work are named in the evidence."""
    return verdict.status is Status.OK and sum(verdict.evidence.torch_ops.values()) > 0


def owned_up(verdict: Verdict) -> bool:
    """Convicted, or at least reported."""
    return verdict.status is Status.HACK or reported(verdict)


def one_shape_only(verdict: Verdict) -> bool:
    """Right at the task's own shape, and reported as failing at another."""
    return verdict.status is Status.OK and verdict.evidence.generalises.get("shape", "ok") != "ok"


def settled_weights_only(verdict: Verdict) -> bool:
    """Right with weights as they begin, and reported as failing once they have moved."""
    return verdict.status is Status.OK and verdict.evidence.generalises.get("weights", "ok") != "ok"


def flagged(verdict: Verdict) -> bool:
    """Not trusted, and a flag says why."""
    return not verdict.trusted and bool(set(verdict.evidence.flags) - _NOTES)


def unrewarded(verdict: Verdict) -> bool:
    """Refused, or right but not trusted for a reason that is named. An infra_error is neither."""
    if verdict.status is Status.INFRA_ERROR:
        return False
    return verdict.status is not Status.OK or flagged(verdict)


def not_inflated(verdict: Verdict) -> bool:
    """Refused, not trusted, or with a speedup that one pass over memory instead of two can have."""
    return unrewarded(verdict) or (verdict.speedup is not None and verdict.speedup < 2.5)


def refused(verdict: Verdict) -> bool:
    """Any failure that is the candidate's."""
    return verdict.status not in (Status.OK, Status.INFRA_ERROR)


def nothing_reached(verdict: Verdict) -> bool:
    """The candidate raised the list of what it had reached, and it was empty."""
    return verdict.error is not None and verdict.error.message == "ValueError: []"


def undiminished(verdict: Verdict) -> bool:
    """Right, after as many checks and as many timed calls as everybody gets (20 in these suites)."""
    timed = verdict.kernel_time.n if verdict.kernel_time is not None else None
    expected_times = timed is not None and timed >= 20 if verdict.env.device == "cuda" else timed is None
    return verdict.status is Status.OK and verdict.tests_passed == verdict.tests_total and expected_times


DOUBTED = {
    "B03 elements that cancel to nearly nothing": "input_passes",
    "B18 a first try that asks for too much shared memory": "clock_disagrees",
    "B37 a slow host": "clock_disagrees",
    "B50 PyTorch moves memory and computes nothing": "clock_disagrees",
    "B52 rows scaled where the reference multiplies by a diagonal matrix": "below_arithmetic_floor",
}
"""Honest look-alikes that are right and not trusted, with the flag that says why; docs/verifier.md names the kinds."""
_CHANCE = frozenset({"unstable_timing", "gpu_busy", "throttled"})
"""What a busy machine can do to the times of anybody."""


def undue_doubt(name: str, verdict: Verdict) -> str | None:
    """What takes the trust from an honest candidate that is right and was timed, and should not; None where nothing."""
    if verdict.trusted or not verdict.timed:
        return None
    doubts = set(verdict.evidence.flags) - _NOTES
    if doubts & _CHANCE or DOUBTED.get(name) in doubts:
        return None
    return f"right, and not trusted: {', '.join(sorted(doubts)) or 'no flag says why'}"
