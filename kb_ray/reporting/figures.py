"""The plots of one set of episodes, as figures: what is counted, nothing of how it is drawn.

Metrics come from kb_ray.score as they are; here they are arranged, and values are put into bins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kb_ray.reporting.figure import BLUE, GREEN, ORANGE, STATUS_COLOURS, Figure, Series
from kb_ray.score.metrics import best_speedups
from kb_ray.score.outcomes import Outcome
from kb_ray.score.summary import Estimate, Scope

_UNTIMED = "Nothing was timed: there was no GPU, or no kernel was correct."
_NO_TURNS = "No turn was judged."


def figures(part: Scope, found: Sequence[Outcome], seconds: Mapping[str, float]) -> tuple[Figure, ...]:
    """All plots of the episodes `found`, whose metrics are `part` and whose waits add up to `seconds`."""
    judged = [item for item in found if item.judged]
    turns = [turn for item in found for turn in item.turns]
    return (
        fast_p(part),
        statuses_by_turn(part),
        success_by_turn(part),
        histogram(
            "speedups", "Speedup of the best kernels", best_speedups(judged), 4,
            "Correct, trusted, timed best turns; four bins to a doubling.",
            "speedup over the reference (log scale)", "episodes", _UNTIMED,
        ),
        histogram(
            "tokens", "Tokens of an answer", [float(turn.tokens) for turn in turns], 2,
            "Tokens generated in each turn, reasoning included; two bins to a doubling.",
            "tokens (log scale)", "answers", _NO_TURNS,
        ),
        histogram(
            "model_seconds", "Seconds waited for an answer", [turn.model_s for turn in turns], 2,
            "From asking the model to its whole answer, each turn; two bins to a doubling.",
            "seconds (log scale)", "answers", "No wait for a model was recorded.",
        ),
        where_time_went(seconds),
        stop_reasons(part),
    )  # fmt: skip


def fast_p(part: Scope) -> Figure:
    """fast_p over p, for the best of turns."""
    return Figure(
        name="fast_p", title="fast_p curve", kind="curve", percent=True,
        note="Share of tasks with a correct kernel faster than p times the reference; the best of turns counts.",
        x_label="speedup p", y_label="tasks", x=tuple(p for p, _ in part.curve),
        series=(Series(label="fast_p", colour=BLUE, y=tuple(share for _, share in part.curve)),),
        empty=None if part.curve else _UNTIMED,
    )  # fmt: skip


def statuses_by_turn(part: Scope) -> Figure:
    """Shares of statuses in each turn."""
    totals = [max(sum(turn.statuses.values()), 1) for turn in part.turns]
    seen = {name for turn in part.turns for name in turn.statuses}
    series = tuple(
        Series(
            label=status.value,
            colour=colour,
            y=tuple(turn.statuses.get(status.value, 0) / n for turn, n in zip(part.turns, totals, strict=True)),
        )
        for status, colour in STATUS_COLOURS.items()
        if status.value in seen
    )
    return Figure(
        name="statuses_by_turn", title="Verdicts by turn", kind="stack", percent=True,
        note="Of the answers given in each turn; an episode that has succeeded gives no further one.",
        x_label="turn", y_label="answers", categories=tuple(str(turn.turn) for turn in part.turns), series=series,
        empty=None if part.turns else _NO_TURNS,
    )  # fmt: skip


def success_by_turn(part: Scope) -> Figure:
    """How many episodes are solved by each turn, and how good the answers of that turn are."""
    return Figure(
        name="success_by_turn", title="Success by turn", kind="points", percent=True,
        note="Solved: of all judged episodes. Compiled and correct: of the answers of that turn. 95 % intervals.",
        x_label="turn", y_label="share", categories=tuple(str(turn.turn) for turn in part.turns),
        series=(
            _estimates("solved so far", GREEN, [turn.solved_by for turn in part.turns]),
            _estimates("compiled", ORANGE, [turn.answers.compiled for turn in part.turns]),
            _estimates("correct", BLUE, [turn.answers.correct for turn in part.turns]),
        ),
        empty=None if part.turns else _NO_TURNS,
    )  # fmt: skip


def where_time_went(seconds: Mapping[str, float]) -> Figure:
    """Hours by what was waited for, longest first."""
    spent = sorted(((name, s) for name, s in seconds.items() if s > 0), key=lambda pair: (-pair[1], pair[0]))
    return Figure(
        name="where_time_went", title="Where the time went", kind="bars",
        note="Seconds of all turns added up; episodes run at once, so it is more than the clock's.",
        x_label="seconds", y_label="", categories=tuple(name for name, _ in spent),
        series=(Series(label="seconds", colour=BLUE, y=tuple(s for _, s in spent)),),
        empty=None if spent else "No time was recorded.",
    )  # fmt: skip


def stop_reasons(part: Scope) -> Figure:
    """Episodes by why they ended, most frequent first."""
    return Figure(
        name="stop_reasons", title="Why episodes ended", kind="bars", note="All episodes, failed ones included.",
        x_label="episodes", y_label="", categories=tuple(part.stop_reasons),
        series=(Series(label="episodes", colour=BLUE, y=tuple(map(float, part.stop_reasons.values()))),),
        empty=None if part.stop_reasons else "No episode.",
    )  # fmt: skip


def histogram(
    name: str, title: str, values: Iterable[float], per_doubling: int, note: str, x_label: str, y_label: str, empty: str
) -> Figure:
    """Positive values in bins of equal width on a logarithmic axis, an edge at 1; others are left out."""
    bins = Counter(math.floor(math.log2(value) * per_doubling) for value in values if 0 < value < math.inf)
    first, last = (min(bins), max(bins)) if bins else (0, -1)
    return Figure(
        name=name, title=title, kind="histogram", note=note, x_label=x_label, y_label=y_label, log_x=True,
        x=tuple(2.0 ** (at / per_doubling) for at in range(first, last + 2)),
        series=(Series(label=y_label, colour=BLUE, y=tuple(float(bins[at]) for at in range(first, last + 1))),),
        empty=None if bins else empty,
    )  # fmt: skip


def _estimates(label: str, colour: str, found: Sequence[Estimate]) -> Series:
    return Series(
        label=label,
        colour=colour,
        y=tuple(item.value for item in found),
        low=tuple(item.low for item in found),
        high=tuple(item.high for item in found),
    )
