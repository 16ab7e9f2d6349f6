"""What a trained model does on each split, from the stores of its evaluation: a Markdown table with 95 % intervals.

    python -m benchmarks.learning.table NAME=STORE[,STORE...] ...

One row for each name and split; several stores of a name are seeds, whose episodes count together. Rates are over
episodes with Wilson's interval, speedups over right kernels with a bootstrap over tasks. Knows no training.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.learning.splits import SPLITS
from kb_ray.score.estimates import Estimate, Grouping, rate
from kb_ray.score.outcomes import Outcome, outcomes
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.store import open_store

COLUMNS = (
    "model", "split", "first answer right", "right by the last turn", "mended", "speedup, geometric mean",
    "of the same programs, times the first model's", "hacks", "n",
)  # fmt: skip


class Row(NamedTuple):
    """One model on one split."""

    first: Estimate
    last: Estimate
    mended: int
    """Episodes whose first answer was wrong and a later one right."""
    speedup: Estimate
    gain: Estimate
    """Speedup over that of another model, of programs that both have right."""
    hacks: int
    n: int


def row_of(found: Sequence[Outcome], beside: Sequence[Outcome]) -> Row:
    """Of judged episodes of one split; `beside`: the same split of the model to compare with."""
    first = [bool(item.turns and item.turns[0].correct) for item in found]
    by_last = [item.solved_at is not None for item in found]
    own, other = speedups(found), speedups(beside)
    ratios = {task: own[task] / other[task] for task in own.keys() & other.keys()}
    return Row(
        rate(first),
        rate(by_last),
        sum(late and not early for early, late in zip(first, by_last, strict=True)),
        _geometric_mean(own),
        _geometric_mean(ratios),
        sum(turn.status == "hack" for item in found for turn in item.turns),
        len(found),
    )


def speedups(found: Sequence[Outcome]) -> dict[str, float]:
    """Geometric mean of the best answers' speedups by task; tasks without a right and timed one are left out."""
    values: dict[str, list[float]] = {}
    for item in found:
        if item.best_answer is not None and item.best_answer.speedup is not None:
            values.setdefault(item.task_id, []).append(item.best_answer.speedup)
    return {task: math.exp(math.fsum(map(math.log, of)) / len(of)) for task, of in values.items()}


def table(models: Mapping[str, Sequence[Outcome]]) -> str:
    """Markdown. The first model is the one that others are compared with."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    beside = next(iter(models.values()))
    for name, found in models.items():
        for split in SPLITS:
            here = [item for item in found if item.judged and item.task_id.startswith(f"{split}/")]
            if here:
                row = row_of(here, [item for item in beside if item.task_id.startswith(f"{split}/")])
                lines.append(f"| {name} | {split} | {' | '.join(_cells(row))} |")
    return "\n".join(lines)


def read(uris: Sequence[str]) -> list[Outcome]:
    """What became of the episodes of stores."""
    return [item for uri in uris for item in outcomes(read_episodes(survey(open_store(uri))))]


def _geometric_mean(values: Mapping[str, float]) -> Estimate:
    return Grouping(list(values)).geometric_mean(list(values.items()))


def _cells(row: Row) -> tuple[str, ...]:
    return (
        _told(row.first, percent=True), _told(row.last, percent=True), str(row.mended), _told(row.speedup),
        _told(row.gain), str(row.hacks), str(row.n),
    )  # fmt: skip


def _told(found: Estimate, percent: bool = False) -> str:
    if found.value is None:
        return "-"
    shown = [f"{100 * x:.1f}" if percent else f"{x:.2f}" for x in (found.value, found.low, found.high) if x is not None]
    unit = " %" if percent else ""
    return f"{shown[0]}{unit}" + (f" ({shown[1]} to {shown[2]})" if len(shown) == 3 else "")


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.table", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="NAME=STORE[,STORE...]")
    given = parser.parse_args(argv)
    named = [entry.partition("=") for entry in given.models]
    print(table({name: read(uris.split(",")) for name, _, uris in named}))


if __name__ == "__main__":
    main()
