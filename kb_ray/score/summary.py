"""The records that hold metrics: what metrics.json, the table and the report are made from.

Only declarations; how each number comes about is said in docs/metrics.md and done in metrics.py.
"""

from __future__ import annotations

from kb_ray.records import Record


class Estimate(Record):
    """A number, its 95 % interval, and what it was found on."""

    value: float | None
    """None where it is not defined: nothing to count, or nothing timed."""
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Trials of a share; values of a mean or a median."""
    count: int | None = None
    """Successes, where the number is count / n."""


class FastP(Record):
    """fast_p at one threshold: the share of tasks with a correct kernel and speedup > p."""

    p: float
    share: Estimate


class Answers(Record):
    """Metrics of one answer for each episode: its best, its last, or that of one turn."""

    valid: Estimate
    compiled: Estimate
    correct: Estimate
    trusted: Estimate
    """Correct, and nothing about it could not be excluded."""
    fast_p: tuple[FastP, ...]
    """At 0, 0.5, 0.8, 1, 1.2, 1.5, 2 and 3: speedup > p, as KernelBench counts. Per task, then over tasks."""
    fast_2_at_least: Estimate
    """The first document's fast_2: speedup >= 2."""
    speedup_mean: Estimate
    speedup_median: Estimate
    speedup_geomean: Estimate


class TurnMetrics(Record):
    """Metrics of one turn over the episodes that reached it."""

    turn: int
    """1-based."""
    answers: Answers
    format: Estimate
    hack: Estimate
    solved_by: Estimate
    """Episodes with a correct kernel at this turn or an earlier one, of all judged episodes."""
    statuses: dict[str, int]
    """Verdicts of this turn, most frequent first."""


class PassAtK(Record):
    """Chance that one of k samples of a task is correct, over the tasks with at least k samples."""

    k: int
    estimate: Estimate
    tasks: int


class Costs(Record):
    """What was spent, failed episodes included."""

    tokens: int
    """Tokens generated."""
    prompt_tokens: int
    gpu_s: float
    """GPU seconds of verdicts; those of the model server are not known here."""
    model_s: float
    """Seconds that episodes waited for the model, added up."""
    correct: int
    """Episodes with a correct kernel, failed episodes included."""
    tokens_per_correct: Estimate
    gpu_s_per_correct: Estimate
    """None on a CPU."""


class Scope(Record):
    """Metrics of one set of episodes."""

    episodes: int
    judged: int
    """Episodes that did not end by a failure of model server or verifier: what all quality metrics are over."""
    tasks: int
    """Tasks with a judged episode."""
    samples: int
    """Samples of a task at most."""
    best: Answers
    """Best of turns."""
    last: Answers
    """Last turn."""
    success: Estimate
    """Episodes with a correct kernel at any turn."""
    pass_at_k: tuple[PassAtK, ...]
    turns_used: Estimate
    """Turns of an episode."""
    turns_to_success: Estimate
    """1-based turn of the first correct kernel, over the episodes that have one."""
    format: Estimate
    """Answers in which code was found, of all answers."""
    hack: Estimate
    """Answers called a hack, of all answers."""
    infra: Estimate
    """Episodes that our own side failed, of all episodes."""
    model_error: Estimate
    """Episodes that the model server failed, of all episodes."""
    turns: tuple[TurnMetrics, ...]
    statuses: dict[str, int]
    """Verdicts of all turns, most frequent first."""
    stop_reasons: dict[str, int]
    curve: tuple[tuple[float, float], ...]
    """(p, fast_p) of the best of turns; empty where nothing was timed."""
    costs: Costs


class Summary(Record):
    """Metrics of a run or a store."""

    timed: bool
    """False where verdicts came from a CPU: nothing is said about speed then."""
    overall: Scope
    """Tasks without a flag that excludes them."""
    by_level: dict[str, Scope]
    """By level as text, `none` where a task has none; unflagged tasks."""
    by_source: dict[str, Scope]
    """By source; unflagged tasks."""
    flagged: Scope | None
    """Flagged tasks; None where there are none."""
    everything: Scope | None
    """Both together; None where no task is flagged."""
    flagged_tasks: tuple[str, ...]
    """Ids, sorted."""
