"""Evaluate a model, a checkpoint, files of kernels or a trace store: metrics with intervals, a table and a report.

`python -m kb_ray.evaluate`: a run as generate's where there is something to run, then metrics over its store. Exit
codes as generate's; a run that ended early by a signal is not evaluated. Definitions are in docs/metrics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kb_ray import logs
from kb_ray.config_sources import parse_command
from kb_ray.errors import ConfigError
from kb_ray.evaluation import board, tables
from kb_ray.evaluation.answering import answering, is_store
from kb_ray.evaluation.options import EvaluateConfig, EvaluateOptions, arguments
from kb_ray.evaluation.results import Evaluated, Wanted, evaluate_store, read_outcomes, write, write_json
from kb_ray.report import write_report
from kb_ray.running import exit_code_of, run
from kb_ray.score.pairing import compare
from kb_ray.traces.store import open_store


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    logs.setup("text")
    given = arguments(sys.argv[1:] if argv is None else argv)

    async def command() -> int:
        options = parse_command(EvaluateConfig, given, prog="python -m kb_ray.evaluate")
        options.check()
        return await (_compare(options) if options.compare else _evaluate(options))

    return exit_code_of(command)


async def _evaluate(options: EvaluateOptions) -> int:
    wanted: Wanted | None = None
    if options.source_store is None:
        settings, completer, selection = answering(options)
        code = await run(settings, completer=completer, select=selection)
        if code or options.dry_run:
            return code
        wanted = selection.wanted
    store = open_store(options.source_store or options.output)
    evaluated = evaluate_store(store, options, wanted)
    _tell(evaluated, options)
    for path in write(evaluated, options):
        print(f"written:   {path}")
    if options.tensorboard_log_dir is not None:
        count = board.log(
            options.tensorboard_log_dir, options.tensorboard_step, evaluated.results.summary, evaluated.outcomes
        )
        print(f"written:   {count} scalars at step {options.tensorboard_step} in {options.tensorboard_log_dir}")
    report = options.results_folder / "report.html"
    write_report(store, report, skip_corrupt=options.skip_corrupt, gpu_hour_price=options.gpu_hour_price)
    print(f"report:    {report}")
    return 0


def _tell(evaluated: Evaluated, options: EvaluateOptions) -> None:
    results = evaluated.results
    for file in evaluated.found.damaged:
        print(f"skipped: {file.key}: {file.reason}", file=sys.stderr)
    print(tables.summary_table(results.summary))
    if len(results.summary.overall.turns) > 1:
        print("\n" + tables.turns_table(results.summary.overall))
    if results.published:
        print("\n" + tables.published_table(results.published))
    cost = "" if results.cost is None else f", {results.cost:.2f} at {options.gpu_hour_price:g} per hour"
    print(f"\nGPU hours of verdicts: {results.gpu_hours:.2f}{cost}")


async def _compare(options: EvaluateOptions) -> int:
    """Two stores as they are, or two checkpoints, each evaluated in a folder of its own first."""
    stores = []
    for name in options.compare:
        if is_store(name):
            stores.append(name)
            continue
        output = f"{options.output.rstrip('/')}/{Path(name).expanduser().resolve().name}"
        if output in stores:
            raise ConfigError(f"--compare: both checkpoints are called {Path(name).name}, rename one")
        changes = {"compare": (), "model_path": name, "output": output, "results": None}
        code = await _evaluate(options.model_copy(update=changes))
        if code or options.dry_run:
            return code
        stores.append(output)
    first, second = (read_outcomes(open_store(uri), options) for uri in stores)
    found = compare(first, second)
    if not found.tasks:
        raise ConfigError(f"--compare: {stores[0]} and {stores[1]} have no task in common that both judged")
    print(f"first:  {stores[0]}\nsecond: {stores[1]}\n{tables.comparison_table(found)}")
    content = {"first": stores[0], "second": stores[1], **found.model_dump(mode="json")}
    folder = Path(options.results).expanduser() if options.results else Path("evaluation")
    for path in write_json(folder, {"comparison.json": content}):
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
