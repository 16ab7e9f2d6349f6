"""Results as other projects write them: the second document's JSON, and KernelBench's run folders.

Turns episodes into plain JSON values; who reads them decides what they mean. Writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kb_ray.evaluation.problems import Problems
from kb_ray.records import REDONE_ON_RESUME, Episode, StopReason, Timing, Turn, Verdict
from kb_ray.score.formulas import mean, pass_at_k
from kb_ray.score.outcomes import Outcome

Json = dict[str, Any]
_NOT_TIMED = -1.0
"""KernelBench's own sign for a kernel without a time."""


def tritonrl(model: str, found: Sequence[Outcome]) -> Json:
    """The second document's output: rates in percent over the best of turns, then each episode's stage and reward."""
    judged = [item for item in found if item.judged]
    best = [item.best_answer for item in judged]

    def percent(name: str) -> float:
        return round(100 * sum(bool(turn and getattr(turn, name)) for turn in best) / len(best), 2) if best else 0.0

    several = any(item.sample for item in judged)
    return {
        "model_path": model,
        "num_tasks": len({item.task_id for item in judged}),
        "metrics": {f"{name}_rate": percent(name) for name in ("valid", "compiled", "correct")},
        "detailed_results": [
            {
                "id": f"{item.task_id}#{item.sample}" if several else item.task_id,
                "stage": turn.stage if turn else "extract",
                "reward": round(turn.reward, 4) if turn else 0.0,
            }
            for item, turn in zip(judged, best, strict=True)
        ],
    }


class KernelBenchRuns:
    """KernelBench's files by level, one episode after another.

    Over the judged episodes of KernelBench's problems, as the metrics are: other tasks and failures that say nothing
    of the model are left out, and a prompt that never fitted counts as a wrong kernel. A problem's samples are numbered
    anew from 0, in their own order: KernelBench's analysis looks at sample 0 alone and takes a problem without one as
    wrong, and a sample 0 that we failed, or another number that training gave, is not the model's fault.
    """

    def __init__(self) -> None:
        self._problems = Problems("--format kernelbench")
        self._results: dict[int, dict[int, dict[int, Json]]] = {}
        self._references: dict[int, dict[str, _Reference]] = {}

    def add(self, episodes: Iterable[Episode]) -> None:
        """Takes those that count, each (task, sample) once. ConfigError where two tasks are one problem there."""
        for episode in episodes:
            task = episode.task
            if episode.stop_reason in REDONE_ON_RESUME:
                continue
            place = self._problems.place(task.task_id, task.source, task.level, task.problem_id)
            if place is None:
                continue
            level, number = place
            turn = None if episode.best_turn is None else episode.turns[episode.best_turn]
            entry = _entry(turn, episode.stop_reason)
            self._results.setdefault(level, {}).setdefault(number, {})[episode.sample] = entry
            reference = self._references.setdefault(level, {}).setdefault(f"{task.name}.py", _Reference())
            reference.add(episode.sample, turn, entry)

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels seen, ascending."""
        return tuple(sorted(self._results))

    def eval_results(self, level: int) -> Json:
        """eval_results.json: entries by problem, samples in order and numbered from 0."""
        return {
            str(problem): [{"sample_id": number} | entry for number, (_, entry) in enumerate(sorted(entries.items()))]
            for problem, entries in sorted(self._results[level].items())
        }

    def pass_at_k_results(self, level: int) -> Json:
        """pass_at_k_results.json: of each problem and averaged, for k up to the samples that all problems have."""
        counts = {
            problem: (len(entries), sum(entry["correctness"] for entry in entries.values()))
            for problem, entries in sorted(self._results[level].items())
        }
        most = min(n for n, _ in counts.values())
        problems = {
            str(problem): {
                "total_samples": n,
                "correct_samples": c,
                **{f"pass@{k}": chance for k, chance in enumerate(pass_at_k(n, c)[:most], start=1)},
            }
            for problem, (n, c) in counts.items()
        }
        averages = {
            f"avg_pass@{k}": sum(row[f"pass@{k}"] for row in problems.values()) / len(problems)
            for k in range(1, most + 1)
        }
        metadata = {
            "total_problems": len(problems),
            "problems_with_samples": len(problems),
            "total_evaluated_samples": sum(n for n, _ in counts.values()),
            "total_correct_samples": sum(c for _, c in counts.values()),
        }
        return {"averages": averages, "metadata": metadata, "problems": problems}

    def baseline(self, level: int) -> Json:
        """A baseline file with the reference times of this very run, in ms.

        KernelBench divides means where our speedup is of medians, and a few slow calls are enough to put one of them
        on the other side of 1. So a problem's baseline is what makes that quotient our speedup, for the first of its
        samples that is right: where sample 0, which its analysis looks at, is right, for that one. Runtimes stay as
        they were measured, since other baselines may be set beside them. Where no sample is right it is the mean.

        0 where no kernel is right and none was timed: KernelBench's analysis would take a problem without an entry out
        of the tasks that shares are of. No entry where a right kernel was not timed, as on a CPU: there its speedup
        would come out as a number below 0, or 0, and spoil the mean over all problems.
        """
        found = sorted(self._references.get(level, {}).items())
        return {f"level{level}": {name: {"mean": one.baseline} for name, one in found if not one.untimed}}


@dataclass
class _Reference:
    """What is known of a problem's reference."""

    times: list[float] = field(default_factory=list)
    """Milliseconds, of each sample that was timed."""
    of_right: dict[int, float] = field(default_factory=dict)
    """Milliseconds beside which a right sample's runtime shows its speedup, by sample."""
    untimed: bool = False
    """A kernel that is told as right was not timed."""

    @property
    def baseline(self) -> float:
        """Milliseconds to tell; 0 where nothing was timed."""
        return self.of_right[min(self.of_right)] if self.of_right else mean(self.times) or 0.0

    def add(self, sample: int, turn: Turn | None, entry: Json) -> None:
        self.untimed |= entry["correctness"] and entry["runtime"] == _NOT_TIMED
        if turn is not None and (timed := _timed(turn.verdict.reference_time)):
            self.times.append(timed.trimmed_mean_ms)
        speedup = turn.verdict.speedup if turn is not None else None
        if entry["correctness"] and entry["runtime"] != _NOT_TIMED and speedup is not None and math.isfinite(speedup):
            self.of_right[sample] = _dividend(entry["runtime"], speedup)


def _dividend(runtime: float, speedup: float) -> float:
    """What gives `speedup` divided by `runtime`, and never more by a last digit: fast_1.5 asks whether 1.5 > 1.5."""
    found = runtime * speedup
    while found / runtime > speedup:
        found = math.nextafter(found, 0.0)
    return found


def _entry(turn: Turn | None, stop_reason: StopReason) -> Json:
    """What KernelBench knows of a sample, its number apart."""
    if turn is None:
        told = {"compiled": False, "correctness": False, "metadata": {"status": stop_reason.value}}
        return told | {"runtime": _NOT_TIMED, "runtime_stats": {}}
    verdict = turn.verdict
    timing = _timed(verdict.kernel_time)
    # KernelBench knows no doubt: a speed that cannot be trusted must not come out as a fast, right kernel.
    doubtful = verdict.correct and verdict.timed and not verdict.trusted
    return {
        "compiled": verdict.compiled,
        "correctness": verdict.correct and not doubtful,
        "metadata": _metadata(verdict, doubtful),
        "runtime": timing.trimmed_mean_ms if timing else _NOT_TIMED,
        "runtime_stats": _stats(timing, verdict.env.gpu),
    }


def _timed(timing: Timing | None) -> Timing | None:
    """The timing where all of it are times: JSON has no NaN, and KernelBench would divide by what is no time."""
    if timing is None or timing.trimmed_mean_ms <= 0:
        return None
    numbers = (timing.trimmed_mean_ms, timing.std_ms, *timing.samples_ms)
    return timing if all(map(math.isfinite, numbers)) else None


def _metadata(verdict: Verdict, doubtful: bool) -> Json:
    found: Json = {"hardware": verdict.env.gpu or verdict.env.device, "status": verdict.status.value}
    if verdict.error is not None:
        found["error"] = f"{verdict.error.category}: {verdict.error.message}"
    if doubtful:
        found["untrusted"] = list(verdict.evidence.flags)
    return found


def _stats(timing: Timing | None, gpu: str | None) -> Json:
    if timing is None:
        return {}
    samples = timing.samples_ms
    ends = {"min": min(samples), "max": max(samples)} if samples else {}
    return {"mean": timing.trimmed_mean_ms, "std": timing.std_ms, **ends, "num_trials": timing.n, "hardware": gpu}
