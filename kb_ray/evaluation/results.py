"""From a trace store to results: outcomes that are wanted, metrics.json, files in other formats.

Reads one store and writes one local folder; prints nothing. Which store and why is evaluate's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kb_ray
from kb_ray.errors import ConfigError
from kb_ray.evaluation.attempts import Key, counted
from kb_ray.evaluation.coverage import Coverage, coverage
from kb_ray.evaluation.foreign import KernelBenchRuns, tritonrl
from kb_ray.evaluation.options import EvaluateOptions
from kb_ray.evaluation.origins import model_of, training_of
from kb_ray.evaluation.shelf import enter, text_of
from kb_ray.records import Record
from kb_ray.score.baselines import PublishedRow, published
from kb_ray.score.metrics import summarise_outcomes
from kb_ray.score.outcomes import Outcome, flagged_tasks, outcome
from kb_ray.score.summary import Summary
from kb_ray.traces.reading import Survey, read_episodes, survey
from kb_ray.traces.run import read_run
from kb_ray.traces.store import Store

Wanted = Callable[[str, int], bool]
"""(task_id, sample) -> whether it is wanted."""


class Results(Record):
    """Content of metrics.json."""

    version: int = 1
    kb_ray: str = kb_ray.__version__
    store: str
    run_id: str | None
    """None where the store has no run.json."""
    fingerprint: str | None
    model: str | None
    """What answered; of a training run its base model."""
    training: str | None = None
    """Of a training run's store the command that trained: its answers are of a policy that changed meanwhile."""
    skipped_files: tuple[str, ...] = ()
    """Damaged files that were left out."""
    superseded: int
    """Rows of the store that are attempts beside the one that counts: in no number here."""
    retried: int = 0
    """Episodes among those evaluated that were tried more than once: their first judged attempt counts."""
    planned: int | None = None
    """Episodes that the run was asked for, of all levels where a store is read; None where no plan is known, or one
    cannot be read."""
    finished: int | None = None
    """Of those, the ones that the store holds: fewer where the run is unfinished or episodes are lost."""
    lost: int | None = None
    """Planned episodes that were done and are not there any longer: their files are damaged or gone."""
    gpu_hours: float
    """GPU hours of the verdicts on the episodes that were evaluated, flagged ones among them unless excluded."""
    cost: float | None = None
    """`gpu_hours` times the price, where one was given."""
    summary: Summary
    published: tuple[PublishedRow, ...] = ()

    def measured(self) -> str:
        """What was measured, as JSON: without what was said of prices."""
        return self.model_dump_json(exclude={"cost"})


@dataclass(frozen=True)
class Evaluated:
    """A store, looked at."""

    found: Survey
    """Of the episodes that are wanted and no other."""
    outcomes: list[Outcome]
    """Those episodes, in the order of the survey; each (task, sample) once."""
    results: Results
    covered: Coverage | None
    """How much of the plan is there."""


def evaluate_store(
    store: Store, options: EvaluateOptions, wanted: Wanted | None = None, chosen: Collection[Key] | None = None
) -> Evaluated:
    """Metrics of the store's episodes, or of those `wanted`. ConfigError where nothing is left or files are damaged.

    `chosen`: what this run planned; else what the store says was planned.
    """
    attempts = counted(survey(store, skip_corrupt=options.skip_corrupt))
    found = attempts.found
    everything = [outcome(episode) for episode in read_episodes(found)]
    asked = _asked(everything, options, wanted, store.uri)
    flagged = flagged_tasks(asked)
    kept = _first(_unflagged(asked, flagged, store.uri) if options.exclude_flagged else asked, options, wanted)
    summary = summarise_outcomes(kept, exclude_flagged=options.exclude_flagged)
    if options.exclude_flagged:
        # Their names are told though nothing else is.
        summary = summary.model_copy(update={"flagged_tasks": tuple(sorted(flagged))})
    found = _narrowed(found, everything, kept)
    there = {(item.task_id, item.sample) for item in everything}
    run, covered = _run(store), coverage(store, there, chosen, len(found.damaged))
    whole_plan = None if covered is None or covered.damaged_plans else covered
    hours = sum(turn.gpu_s for item in kept for turn in item.turns) / 3600
    price = options.gpu_hour_price
    results = Results(
        store=store.uri,
        run_id=run.get("run_id"),
        fingerprint=run.get("fingerprint"),
        model=run.get("model"),
        training=run.get("training"),
        skipped_files=tuple(file.key for file in found.damaged),
        superseded=found.superseded,
        retried=sum((item.task_id, item.sample) in attempts.retried for item in kept),
        planned=whole_plan.planned if whole_plan else None,
        finished=whole_plan.finished if whole_plan else None,
        lost=whole_plan.lost if whole_plan else None,
        gpu_hours=hours,
        cost=None if price is None else hours * price,
        summary=summary,
        published=published(kept),
    )
    return Evaluated(found, kept, results, covered)


def read_outcomes(store: Store, options: EvaluateOptions) -> tuple[Survey, list[Outcome]]:
    """A store, and its outcomes that a comparison may use: flags and --num-tasks are about both sides together."""
    found = counted(survey(store, skip_corrupt=options.skip_corrupt)).found
    return found, _asked([outcome(episode) for episode in read_episodes(found)], options, None, store.uri)


def write(evaluated: Evaluated, options: EvaluateOptions) -> list[Path]:
    """Writes metrics.json and, where asked for, tritonrl.json; the paths. ConfigError where that cannot be done."""
    folder = options.results_folder
    written = write_json(folder, {"metrics.json": json.loads(evaluated.results.model_dump_json())})
    files: dict[str, Any] = {}
    if "tritonrl" in options.format:
        model = options.in_process or evaluated.results.model or evaluated.results.store
        files["tritonrl.json"] = tritonrl(model, evaluated.outcomes)
    return written + _write_format(evaluated, folder, files)


def write_kernelbench(evaluated: Evaluated, options: EvaluateOptions) -> list[Path]:
    """Writes KernelBench's run folders; the paths. ConfigError where no judged episode can be told there, or two tasks
    are one problem there: everything else should be written before."""
    return _write_format(evaluated, options.results_folder, _kernelbench(evaluated))


def _write_format(evaluated: Evaluated, folder: Path, files: dict[str, Any]) -> list[Path]:
    try:
        enter(folder, evaluated.results.measured(), files)
    except OSError as error:
        raise ConfigError(f"--results: {folder} cannot be written: {error.strerror or error}") from error
    return write_json(folder, files)


def write_json(folder: Path, files: dict[str, Any]) -> list[Path]:
    """JSON files by path under `folder`. ConfigError where that cannot be written."""
    written = []
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(content), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ConfigError(f"--results: {folder} cannot be written: {error.strerror or error}") from error
    return written


def _kernelbench(evaluated: Evaluated) -> dict[str, Any]:
    """A run folder for each level, since KernelBench's own files name no level."""
    runs = KernelBenchRuns()
    runs.add(read_episodes(evaluated.found))
    if not runs.levels:
        raise ConfigError("--format kernelbench: no judged episode is of a KernelBench problem with level and number")
    files: dict[str, Any] = {}
    for level in runs.levels:
        folder = f"kernelbench/level{level}"
        files[f"{folder}/eval_results.json"] = runs.eval_results(level)
        files[f"{folder}/pass_at_k_results.json"] = runs.pass_at_k_results(level)
        files[f"{folder}/baseline.json"] = runs.baseline(level)
    return files


def first_tasks(task_ids: Iterable[str], count: int | None) -> frozenset[str]:
    """The first `count` of these tasks by id, numbers in it as numbers; all where None.

    Not in a store's own order, which is the order in which episodes happened to end.
    """
    return frozenset(sorted(set(task_ids), key=_natural)[:count])


def _natural(task_id: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", task_id) if part]


def _asked(found: list[Outcome], options: EvaluateOptions, wanted: Wanted | None, uri: str) -> list[Outcome]:
    """What was planned, of the levels that were asked for. ConfigError where that is nothing."""
    kept = [item for item in found if wanted is None or wanted(item.task_id, item.sample)]
    _some(kept, found, "what was asked for", uri)
    if options.level:
        kept, before = [item for item in kept if item.level in options.level], kept
        _some(kept, before, f"--level {' '.join(map(str, options.level))}", uri)
    return kept


def _unflagged(found: list[Outcome], flagged: Collection[str], uri: str) -> list[Outcome]:
    kept = [item for item in found if item.task_id not in flagged]
    _some(kept, found, "--exclude-flagged", uri)
    return kept


def _first(found: list[Outcome], options: EvaluateOptions, wanted: Wanted | None) -> list[Outcome]:
    """--num-tasks; a plan has taken its first tasks already."""
    if options.num_tasks is None or wanted is not None:
        return found
    first = first_tasks((item.task_id for item in found), options.num_tasks)
    return [item for item in found if item.task_id in first]


def _narrowed(found: Survey, everything: Sequence[Outcome], kept: Sequence[Outcome]) -> Survey:
    """The survey with the rows of `kept` alone; `everything` is what its rows hold, in their order."""
    ids = {(item.task_id, item.sample) for item in kept}
    places = [(key, row) for key, held in found.rows.items() for row in held]
    rows: dict[str, list[int]] = {}
    for (key, row), item in zip(places, everything, strict=True):
        if (item.task_id, item.sample) in ids:
            rows.setdefault(key, []).append(row)
    return replace(found, rows={key: tuple(held) for key, held in rows.items()})


def _some(kept: list[Outcome], before: list[Outcome], by: str, uri: str) -> None:
    if not kept:
        raise ConfigError(f"{uri}: {by} leaves none of {len(before)} episodes")


def _run(store: Store) -> dict[str, str | None]:
    """What run.json says; empty where there is none."""
    run = read_run(store)
    if run is None:
        return {}
    return {
        "run_id": run.run_id,
        "fingerprint": run.fingerprint,
        "model": model_of(run),
        "training": training_of(run),
    }
