"""`python -m kb_ray.bench CANDIDATE.py --reference REF.py`: the verdict on one file, without Ray.

`--jsonl FILE` takes many rows {id, kernel_code, problem_code}, with settings of their own where they have some, and
prints one JSON line for each as it finishes; `--recheck STORE` verifies the kernels of a trace store again. Exit code:
0 all correct, 1 not, 2 unusable arguments, rows or references, 3 our own failure; with --recheck 0 if every kernel got
its verdict. Does not know how a verdict is reached.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd():
    # `python -m` looks here first: a candidate's file named as a module of Python's would be imported in its place,
    # outside any sandbox. What it has imported itself by now only `python -P` keeps out.
    del sys.path[0]

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kb_ray.bench.api import (
    CONCURRENCY,
    answer,
    bench_request,
    evaluate_here,
    evaluate_on_ray,
    invalid,
    reference_task,
    usable,
)
from kb_ray.bench.joining import join
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.bench.rows import as_finished, opened, parsed
from kb_ray.categories import REFERENCE_ERROR
from kb_ray.errors import ConfigError, InfraError, KbRayError, TaskError
from kb_ray.exiting import end
from kb_ray.flag_parser import FlagParser
from kb_ray.records import Stage, Status, Verdict
from kb_ray.setting_names import flag, misspelt, mistake

_FIELDS = {
    "n_correctness": "n_correctness", "n_trials": "n_trials", "timeout": "timeout_s", "torch_ops": "torch_ops",
    "generalise": "generalise", "baseline": "baseline", "measure_performance": "measure_performance", "tf32": "tf32",
}  # fmt: skip
"""Option -> field of BenchSettings."""
_ANSWERED = frozenset(answer(Verdict.of(Status.NO_CODE, Stage.EXTRACT)))
"""Columns of our own answers, which a row may have from an earlier time: never a setting's name misspelt."""
_ON_RAY = 64
"""Requests under way at once where a cluster evaluates them: its pool holds what its workers have no place for."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        options = _options(argv)
        if options.ray:
            join()
        return (
            _recheck(options, _given(argv)) if options.recheck else _many(options) if options.jsonl else _one(options)
        )
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3 if isinstance(error, InfraError) else 2


def show(verdict: Verdict) -> str:
    """A verdict for a reader, several lines."""
    kernel, reference = verdict.kernel_time, verdict.reference_time
    passed = f"{verdict.tests_passed} of {verdict.tests_total} input sets passed"
    device = verdict.env.gpu or verdict.env.device or "no device used"
    lines = [f"{verdict.status.value}: stage {verdict.stage.value}, {passed}, {device}"]
    if verdict.speedup is not None and kernel is not None and reference is not None:
        medians = f"kernel {kernel.median_ms:.4f} ms, reference {reference.median_ms:.4f} ms (medians)"
        lines.append(f"speedup {verdict.speedup:.2f}x: {medians}")
    elif verdict.correct:
        why = "there is no GPU, the Triton interpreter ran" if verdict.env.device == "cpu" else "only checked"
        lines.append(f"not timed: {why}")
    if verdict.error is not None:
        said = verdict.error.message
        lines.append(f"{verdict.error.category}: {said}")
        # Of an exception both have its words, which stand behind its type here.
        repeated = {said, said.removeprefix("needs a GPU: ").partition(": ")[2]} - {""}
        lines.extend(f"    {line}" for line in verdict.error.detail.splitlines() if line.strip() not in repeated)
    if verdict.correct and not verdict.trusted:
        lines.append("untrusted: " + (", ".join(verdict.evidence.flags) or "see docs/verifier.md"))
    if verdict.seconds:
        lines.append("seconds: " + ", ".join(f"{phase} {took:.2f}" for phase, took in verdict.seconds.items()))
    return "\n".join(lines)


def _options(argv: list[str] | None) -> argparse.Namespace:
    """What the command line asks for. ConfigError where it cannot be used."""
    parser = _parser()
    options = parser.parse_args(argv)
    if sum(given is not None for given in (options.candidate, options.jsonl, options.recheck)) != 1:
        parser.error("give either CANDIDATE.py with --reference, or --jsonl FILE, or --recheck STORE")
    if options.candidate is None and (options.reference, options.input_shapes) != (None, None):
        parser.error("--reference and --input-shapes are for CANDIDATE.py: rows and stores have their own")
    if options.recheck is None and (options.output or options.jsonl_out):
        parser.error("--output and --jsonl-out are for --recheck")
    if options.output and options.jsonl_out:
        parser.error("give --output or --jsonl-out, not both")
    if options.candidate is not None and options.reference is None:
        parser.error("--reference REF.py is needed: the PyTorch program to compare with")
    try:
        BenchSettings(**{field: getattr(options, name) for name, field in _FIELDS.items()})
    except ValidationError as error:
        flags = {field: flag(name) for name, field in _FIELDS.items()}
        told = (f"{flags[str(detail['loc'][0])]}: {mistake(detail)}" for detail in error.errors())
        raise ConfigError("; ".join(told)) from None
    return options


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(
        prog="python -m kb_ray.bench",
        description="Verify a Triton kernel against its PyTorch reference.",
    )
    parser.add_argument("candidate", nargs="?", type=Path, metavar="CANDIDATE.py", help="the kernel's file")
    parser.add_argument("--reference", type=Path, metavar="REF.py", help="reference_impl, or Model")
    parser.add_argument("--input-shapes", metavar="JSON", help='{"x": {"shape": [8], "dtype": "float32"}}')
    parser.add_argument("--jsonl", metavar="FILE", help="many rows; - reads standard input")
    parser.add_argument("--json", action="store_true", help="print the whole verdict as JSON")
    parser.add_argument("--n-correctness", type=int, default=5, help="input sets to pass, 1 to 100 (%(default)s)")
    parser.add_argument("--n-trials", type=int, default=50, help="timed calls of each side, 3 to 10000 (%(default)s)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each phase, up to 3600 (%(default)s)")
    parser.add_argument(
        "--torch-ops", choices=("allow", "report", "forbid"), default="report",
        help="PyTorch operators that compute in a candidate: nothing, evidence, or a hack (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--generalise", choices=("off", "report", "require"), default="report",
        help="try a correct kernel at another shape and dtype (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", choices=("eager", "compile"), default="eager", help="what is timed besides (%(default)s)"
    )
    parser.add_argument(
        "--measure-performance", action=argparse.BooleanOptionalAction, default=True,
        help="time correct candidates where there is a GPU",
    )  # fmt: skip
    parser.add_argument("--tf32", action="store_true", help="allow TF32 on both sides")
    parser.add_argument("--ray", action="store_true", help="evaluate in the pool of the Ray cluster at RAY_ADDRESS")
    parser.add_argument(
        "--recheck", metavar="STORE",
        help="verify the kernels of a trace store again, as it says but for what is named here",
    )  # fmt: skip
    parser.add_argument("--output", metavar="STORE", help="with --recheck: a new store with the new verdicts")
    parser.add_argument("--jsonl-out", type=Path, metavar="FILE", help="with --recheck: one line for each kernel")
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU where there is one"
    )
    return parser


def _one(options: argparse.Namespace) -> int:
    shapes = parsed(options.input_shapes, "--input-shapes") if options.input_shapes else None
    verdict = _evaluate(
        options,
        kernel_code=_read(options.candidate),
        reference_code=_reference(options.reference, shapes),
        input_shapes=shapes,
        kernel_name=options.candidate.stem,
    )
    print(json.dumps(answer(verdict), indent=1) if options.json else show(verdict))
    return _exit_code(verdict)


def _many(options: argparse.Namespace) -> int:
    """Answers every row, a bounded number at a time, so that a file may be larger than memory."""
    codes: set[int] = set()
    with opened(options.jsonl) as lines, ThreadPoolExecutor(_at_once(options)) as threads:
        numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
        for row, code in as_finished(threads, _at_once(options), lambda item: _row(options, *item), numbered):
            print(json.dumps(row), flush=True)
            codes.add(code)
    if not codes:
        raise ConfigError(f"{'standard input' if options.jsonl == '-' else options.jsonl} has no rows")
    return next((code for code in (2, 3, 1) if code in codes), 0)


def _row(options: argparse.Namespace, number: int, text: str) -> tuple[dict[str, Any], int]:
    """One output line and its exit code."""
    row: Any = None
    try:
        row = parsed(text, f"line {number}")
        kernel, reference = _sources(row, number)
        verdict = _evaluate(
            options,
            kernel_code=kernel,
            reference_code=reference,
            input_shapes=row.get("input_shapes"),
            kernel_name=str(row.get("id", number)),
            **{field: row[field] for field in _FIELDS.values() if row.get(field) is not None},
        )
    except KbRayError as error:
        return {"id": row.get("id", number) if isinstance(row, dict) else number, "error": str(error)}, 2
    return {"id": row.get("id", number), **answer(verdict)}, _exit_code(verdict)


def _sources(row: Any, number: int) -> tuple[str, str]:
    """Kernel and reference of a row, by the names of the Python API."""
    given = set(row if isinstance(row, dict) else ())
    references = sorted({"problem_code", "reference_torch_code"} & given)
    if wrong := misspelt(sorted(given - _ANSWERED), ("kernel_code", "problem_code", "input_shapes", *_FIELDS.values())):
        raise ConfigError(f"line {number}: {wrong}")
    missing = sorted({"kernel_code"} - given) + ([] if references else ["problem_code"])
    if missing:
        raise ConfigError(f"line {number} has no {' and no '.join(missing)}")
    if len(references) > 1:
        raise ConfigError(f"line {number} has {' and '.join(references)}: give one of them")
    found = row["kernel_code"], row[references[0]]
    if not all(isinstance(code, str) for code in found):
        raise ConfigError(f"line {number}: kernel_code and {references[0]} must be text")
    return found


def _given(argv: list[str] | None) -> dict[str, Any]:
    """Fields of BenchSettings, but for the device, that the command line names."""
    (parser := _parser()).set_defaults(**dict.fromkeys(_FIELDS))
    options = vars(parser.parse_args(argv))
    return {field: options[name] for name, field in _FIELDS.items() if options[name] is not None}


def _recheck(options: argparse.Namespace, given: dict[str, Any]) -> int:
    """As the store's kernels were verified, but for what the command line says."""
    # Stores need pyarrow: only who reads one waits for it.
    from kb_ray.bench.recheck import recheck, settings_of

    device = usable(options.device) if not options.ray else "cuda" if options.device == "auto" else options.device
    try:
        stored = settings_of(options.recheck)
        settings = BenchSettings(**stored | given, device=device)
    except ValidationError as error:
        raise ConfigError(invalid(error)) from None
    changed = sorted(
        f"{name} {stored.get(name, 'not said')} -> {given[name]}" for name in given if stored.get(name) != given[name]
    )
    print(f"settings: those of the run{', but ' if changed else ''}{', '.join(changed)}", flush=True)
    changes = recheck(
        options.recheck, settings, _evaluator(options), _at_once(options), lambda line: print(line, flush=True),
        options.jsonl_out, options.output,
    )  # fmt: skip
    print(changes.table())
    return 3 if changes.infra else 0


def _evaluate(options: argparse.Namespace, **what: Any) -> Verdict:
    device = None if options.device == "auto" else options.device if options.ray else usable(options.device)
    policy = {field: getattr(options, name) for name, field in _FIELDS.items()}
    return _evaluator(options)(bench_request(**policy | what, device=device))


def _evaluator(options: argparse.Namespace) -> Callable[[BenchRequest], Verdict]:
    return evaluate_on_ray if options.ray else evaluate_here


def _at_once(options: argparse.Namespace) -> int:
    return _ON_RAY if options.ray else CONCURRENCY


def _exit_code(verdict: Verdict) -> int:
    if verdict.status is Status.INFRA_ERROR:
        return 2 if verdict.error is not None and verdict.error.category == REFERENCE_ERROR else 3
    return 0 if verdict.status is Status.OK else 1


def _reference(path: Path, shapes: Any) -> str:
    """The text of the reference. TaskError that names its file where it is no program that can be run: the name of
    the request is the candidate's."""
    code = _read(path)
    try:
        reference_task(code, input_shapes=shapes)
    except TaskError as error:
        raise TaskError(f"--reference {path}: {error}") from None
    return code


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is no UTF-8 ({error.reason} at byte {error.start})") from None


if __name__ == "__main__":
    end(main)
