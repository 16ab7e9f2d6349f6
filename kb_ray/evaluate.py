"""Evaluate a model, a checkpoint, files of kernels or a trace store: metrics with intervals, a table and a report.

`python -m kb_ray.evaluate`: a run as generate's where there is something to run, then metrics over its store. Exit
codes as generate's; a run that ended early by a signal is not evaluated. Definitions are in docs/metrics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from kb_ray import logs
from kb_ray.errors import ConfigError
from kb_ray.evaluation import board, shelf, tables
from kb_ray.evaluation.answering import Selection, answering, is_store
from kb_ray.evaluation.attempts import Key
from kb_ray.evaluation.comparing import compared
from kb_ray.evaluation.coverage import coverage_of
from kb_ray.evaluation.options import EvaluateOptions, check_stores_only, parse
from kb_ray.evaluation.origins import notes
from kb_ray.evaluation.results import (
    Evaluated,
    Wanted,
    evaluate_store,
    read_outcomes,
    write,
    write_json,
    write_kernelbench,
)
from kb_ray.evaluation.sides import results_of, sides_of
from kb_ray.exiting import end
from kb_ray.report import write_page
from kb_ray.running import exit_code_of, run
from kb_ray.traces.reading import Survey
from kb_ray.traces.resume import finished
from kb_ray.traces.store import local_path, open_store, open_to_read


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    logs.setup("text")
    said = sys.argv[1:] if argv is None else argv

    async def command() -> int:
        options, given = parse(said)
        return await (_compare(options, given) if options.compare else _evaluate(options))

    return exit_code_of(command)


async def _evaluate(options: EvaluateOptions) -> int:
    # Before hours of a run, not after them.
    shelf.check(options.results_folder, options.format)
    wanted: Wanted | None = None
    chosen: Collection[Key] | None = None
    if options.source_store is None:
        settings, completer, selection = answering(options)
        code = await run(settings, completer=completer, select=selection)
        if code or options.dry_run:
            return code
        wanted, chosen = selection.wanted, selection.chosen
        if options.shard is not None and (left := _not_there(settings.output, selection)):
            print(
                f"shard {options.shard} is done; {left} of {len(selection.chosen)} episodes, other shards', are not "
                "there yet: the last shard to end evaluates all, and so does the same command without --shard"
            )
            return 0
    store = open_to_read(options.source_store or options.output)
    evaluated = evaluate_store(store, options, wanted, chosen)
    _tell(evaluated, options)
    for path in shelf.clear(options.results_folder, evaluated.results.measured()):
        print(f"removed:   {path}: of an earlier evaluation")
    for path in write(evaluated, options):
        print(f"written:   {path}")
    if options.tensorboard_log_dir is not None:
        count = board.log(
            options.tensorboard_log_dir, options.tensorboard_step, evaluated.results.summary, evaluated.outcomes
        )
        print(f"written:   {count} scalars at step {options.tensorboard_step} in {options.tensorboard_log_dir}")
    report = options.results_folder / "report.html"
    results, price = evaluated.results, options.gpu_hour_price
    told = notes(results.training, results.retried, evaluated.covered)
    write_page(evaluated.found, report, gpu_hour_price=price, summary=results.summary, notes=told)
    print(f"report:    {report}")
    # Last, since it may find that there is nothing to tell there.
    if "kernelbench" in options.format:
        for path in write_kernelbench(evaluated, options):
            print(f"written:   {path}")
    return 0


def _not_there(uri: str, selection: Selection) -> int:
    return len(selection.chosen - finished(open_store(uri)).keys())


def _tell(evaluated: Evaluated, options: EvaluateOptions) -> None:
    results = evaluated.results
    _tell_damage(evaluated.found)
    print(tables.summary_table(results.summary))
    if len(results.summary.overall.turns) > 1:
        print("\n" + tables.turns_table(results.summary.overall))
    if results.published:
        print("\n" + tables.published_table(results.published))
    cost = "" if results.cost is None else f", {results.cost:.2f} at {options.gpu_hour_price:g} per hour"
    others = f"; {results.superseded} rows of other attempts are not counted" if results.superseded else ""
    print(f"\nGPU hours of verdicts: {results.gpu_hours:.2f}{cost}{others}")
    for note in notes(results.training, results.retried, evaluated.covered):
        print(note)


def _tell_damage(found: Survey) -> None:
    for file in found.damaged:
        print(f"skipped: {file.key}: {file.reason}", file=sys.stderr)


async def _compare(options: EvaluateOptions, given: Collection[str]) -> int:
    """Two stores as they are, or two checkpoints, each evaluated in a folder of its own first."""
    sides = sides_of(options.compare, options.output)
    if all(map(is_store, sides)):
        check_stores_only(given)
    # A store that cannot be used is told before a checkpoint takes hours.
    known = {uri: read_outcomes(open_to_read(uri), options) for name, uri in sides.items() if is_store(name)}
    for name, uri in sides.items():
        if uri in known:
            continue
        changes = {"compare": (), "model_path": name, "output": uri, "results": results_of(uri, options.results)}
        if code := await _evaluate(options.model_copy(update=changes)):
            return code
    if options.dry_run:
        return 0
    first, second = sides.values()
    read = {uri: known.get(uri) or read_outcomes(open_store(uri), options) for uri in (first, second)}
    found = compared(read[first][1], read[second][1], options)
    if not found.tasks:
        raise ConfigError(f"--compare: {first} and {second} have no task in common that both judged")
    for looked_at, _ in read.values():
        _tell_damage(looked_at)
    print(f"first:  {first}\nsecond: {second}\n{tables.compared_table(found)}")
    covered = {"first": coverage_of(read[first][0]), "second": coverage_of(read[second][0])}
    for side, part in covered.items():
        if part is not None and part.note is not None:
            print(f"{side}: {part.note}")
    told = {side: part and part.model_dump() for side, part in covered.items()}
    content = {"first": first, "second": second, "coverage": told, **found.as_json()}
    folder = local_path(options.results) if options.results else Path("evaluation")
    for path in write_json(folder, {"comparison.json": content}):
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    end(main)
