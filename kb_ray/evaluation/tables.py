"""Metrics as text for a terminal: one column for each set of episodes, one row for each metric, intervals beside.

Only shows what it is given. Every number's definition is in docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kb_ray.evaluation.comparing import Compared
from kb_ray.score.baselines import PublishedRow
from kb_ray.score.pairing import Comparison, Difference
from kb_ray.score.summary import Answers, Estimate, Scope, Summary

_NONE = "-"


def summary_table(summary: Summary) -> str:
    """The metrics of all, of each level, of each source where there are several, and of flagged tasks."""
    scopes = {"all": summary.overall}
    scopes |= {f"level {name}" if name != "none" else "no level": part for name, part in summary.by_level.items()}
    if len(summary.by_source) > 1:
        scopes |= summary.by_source
    if summary.flagged is not None:
        scopes["flagged"] = summary.flagged
    rows = [["", *scopes]]
    rows += [[name, *(show(part) for part in scopes.values())] for name, show in _rows(summary)]
    lines = [_aligned(rows)]
    if not summary.timed:
        lines.append("nothing was timed, on a CPU or by --no-measure-performance: speed is not known")
    if summary.flagged_tasks:
        lines.append(f"flagged tasks, not in the other columns: {', '.join(summary.flagged_tasks)}")
    return "\n".join(lines)


def turns_table(part: Scope) -> str:
    """One row for each turn."""
    rows = [["turn", "answers", "code found", "valid", "compiled", "correct", "fast_1", "hack", "solved by then"]]
    rows += [
        [
            str(turn.turn), str(turn.answers.valid.n), percent(turn.format), percent(turn.answers.valid),
            percent(turn.answers.compiled), percent(turn.answers.correct), percent(_fast(turn.answers, 1.0)),
            percent(turn.hack), percent(turn.solved_by),
        ]
        for turn in part.turns
    ]  # fmt: skip
    return _aligned(rows)


def published_table(rows: Sequence[PublishedRow]) -> str:
    """Published numbers beside ours; empty where there are none."""
    if not rows:
        return ""
    head = ["published", "metric", "level", "theirs", "ours", "our tasks", "from"]
    return _aligned(
        [head]
        + [
            [
                row.system,
                row.metric,
                str(row.level),
                f"{100 * row.published:.0f} %",
                percent(row.ours),
                str(row.tasks),
                row.source,
            ]
            for row in rows
        ]
    )


def comparison_table(found: Comparison) -> str:
    """Differences, then the tasks gained and lost, and what to mind in these."""
    rows = [["", "first", "second", "second - first"]]
    rows += [_difference(item) for item in found.differences]
    lines = [
        f"{found.tasks} tasks in both; {found.only_first} only in the first, {found.only_second} only in the second"
    ]
    lines.append(_aligned(rows))
    for name, tasks in (("gained", found.gained), ("lost", found.lost)):
        lines.append(f"{name}: {len(tasks)}" + (f" ({', '.join(tasks)})" if tasks else ""))
    if found.note is not None:
        lines.append(found.note)
    return "\n".join(lines)


def compared_table(found: Compared) -> str:
    """The comparison, and that of flagged tasks below it."""
    lines = [comparison_table(found.comparison)]
    if found.flagged is not None:
        lines += ["", "flagged tasks, not in what stands above:", comparison_table(found.flagged)]
    if found.flagged_tasks:
        lines.append(f"flagged: {', '.join(found.flagged_tasks)}")
    return "\n".join(lines)


def percent(estimate: Estimate) -> str:
    """`40.0 % [25.1, 56.9]`."""
    return _shown(estimate, lambda value: f"{100 * value:.1f}", " %")


def times(estimate: Estimate) -> str:
    """`1.52x [1.10, 2.03]`."""
    return _shown(estimate, lambda value: f"{value:.2f}", "x")


def number(estimate: Estimate) -> str:
    """`2.3 [1.9, 2.8]`."""
    return _shown(estimate, lambda value: f"{value:.1f}", "")


def _rows(summary: Summary) -> list[tuple[str, Callable[[Scope], str]]]:
    rows: list[tuple[str, Callable[[Scope], str]]] = [
        ("tasks", lambda part: str(part.tasks)),
        ("episodes judged / all", lambda part: f"{part.judged} / {part.episodes}"),
        ("best of turns:", lambda part: ""),
        *_answers(lambda part: part.best, summary.timed),
    ]
    if len(summary.overall.turns) > 1:
        rows += [("last turn:", lambda part: ""), *_answers(lambda part: part.last, summary.timed)]
    rows += [("over the episodes:", lambda part: ""), ("  success", lambda part: percent(part.success))]
    deepest = max((len(part.pass_at_k) for part in (summary.overall, summary.flagged) if part), default=0)
    rows += [(f"  pass@{k}", _passing(k)) for k in range(1, deepest + 1) if k in (1, deepest) or k & (k - 1) == 0]
    return [
        *rows,
        ("  turns used", lambda part: number(part.turns_used)),
        ("  turns to success", lambda part: number(part.turns_to_success)),
        ("  code found", lambda part: percent(part.format)),
        ("  hack", lambda part: percent(part.hack)),
        ("  failed: ours", lambda part: percent(part.infra)),
        ("  failed: model server", lambda part: percent(part.model_error)),
        ("  tokens per correct kernel", lambda part: number(part.costs.tokens_per_correct)),
        ("  GPU s per correct kernel", lambda part: number(part.costs.gpu_s_per_correct)),
    ]


def _answers(pick: Callable[[Scope], Answers], timed: bool) -> list[tuple[str, Callable[[Scope], str]]]:
    rows: list[tuple[str, Callable[[Scope], str]]] = [
        ("  valid", lambda part: percent(pick(part).valid)),
        ("  compiled", lambda part: percent(pick(part).compiled)),
        ("  correct", lambda part: percent(pick(part).correct)),
    ]
    if not timed:
        return rows
    rows.append(("  correct and trusted", lambda part: percent(pick(part).trusted)))
    for p in (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0):
        rows.append((f"  fast_{p:g} (> {p:g})", _fast_row(pick, p)))
    return [
        *rows,
        ("  fast_2 (>= 2)", lambda part: percent(pick(part).fast_2_at_least)),
        ("  speedup, mean", lambda part: times(pick(part).speedup_mean)),
        ("  speedup, median", lambda part: times(pick(part).speedup_median)),
        ("  speedup, geometric mean", lambda part: times(pick(part).speedup_geomean)),
    ]


def _fast_row(pick: Callable[[Scope], Answers], p: float) -> Callable[[Scope], str]:
    return lambda part: percent(_fast(pick(part), p))


def _passing(k: int) -> Callable[[Scope], str]:
    return lambda part: percent(part.pass_at_k[k - 1].estimate) if len(part.pass_at_k) >= k else _NONE


def _fast(answers: Answers, p: float) -> Estimate:
    return next(item.share for item in answers.fast_p if item.p == p)


def _difference(item: Difference) -> list[str]:
    if item.name == "speedup":
        plain = [_NONE if value is None else f"{value:.2f}x" for value in (item.first, item.second)]
        return ["speedup, geometric mean", *plain, f"{times(item.difference)} of the first's"]
    plain = [_NONE if value is None else f"{100 * value:.1f} %" for value in (item.first, item.second)]
    return [item.name, *plain, _shown(item.difference, lambda value: f"{100 * value:+.1f}", " points")]


def _shown(estimate: Estimate, text: Callable[[float], str], unit: str) -> str:
    if estimate.value is None:
        return _NONE
    interval = (
        "" if estimate.low is None or estimate.high is None else f" [{text(estimate.low)}, {text(estimate.high)}]"
    )
    return text(estimate.value) + unit + interval


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
