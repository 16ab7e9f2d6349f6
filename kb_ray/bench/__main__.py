"""`python -m kb_ray.bench CANDIDATE.py --reference REF.py`: the verdict on one file, without Ray.

`--jsonl FILE` takes many rows {id, kernel_code, problem_code} and prints one JSON line for each as it
finishes. Exit code: 0 all correct, 1 not, 2 unusable arguments, 3 our own failure. Does not know how a
verdict is reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from kb_ray.bench.api import CONCURRENCY, answer, bench_request, evaluate_here
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.records import Status, Verdict


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.candidate is None) == (options.jsonl is None):
        parser.error("give either CANDIDATE.py with --reference, or --jsonl FILE")
    if options.candidate is not None and options.reference is None:
        parser.error("--reference REF.py is needed: the PyTorch program to compare with")
    try:
        return _many(options) if options.jsonl else _one(options)
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


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
        lines.append("not timed: there is no GPU, the Triton interpreter ran")
    if verdict.error is not None:
        lines.append(f"{verdict.error.category}: {verdict.error.message}")
        lines.extend(f"    {line}" for line in verdict.error.detail.splitlines())
    if verdict.correct and not verdict.trusted:
        lines.append("untrusted: " + (", ".join(verdict.evidence.flags) or "see docs/verifier.md"))
    lines.append("seconds: " + ", ".join(f"{phase} {took:.2f}" for phase, took in verdict.seconds.items()))
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU where there is one"
    )
    return parser


def _one(options: argparse.Namespace) -> int:
    shapes = _json(options.input_shapes, "--input-shapes") if options.input_shapes else None
    verdict = _evaluate(
        options,
        kernel_code=_read(options.candidate),
        reference_code=_read(options.reference),
        input_shapes=shapes,
        kernel_name=options.candidate.stem,
    )
    print(json.dumps(answer(verdict), indent=1) if options.json else show(verdict))
    return _exit_code({verdict.status})


def _many(options: argparse.Namespace) -> int:
    source = sys.stdin if options.jsonl == "-" else _read(Path(options.jsonl)).splitlines()
    rows = list(_rows(source))
    statuses: set[Status] = set()
    unusable = False
    with ThreadPoolExecutor(CONCURRENCY) as threads:
        work = [threads.submit(_row, options, row) for row in rows]
        for done in as_completed(work):
            line, status = done.result()
            print(json.dumps(line), flush=True)
            statuses |= {status} if status else set()
            unusable |= status is None
    return 2 if unusable else _exit_code(statuses)


def _rows(lines: Any) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = _json(line, f"line {number}")
            missing = {"kernel_code", "problem_code"} - set(row if isinstance(row, dict) else ())
            if missing:
                raise ConfigError(f"line {number} has no {' and no '.join(sorted(missing))}")
            yield {"id": number, **row}


def _row(options: argparse.Namespace, row: dict[str, Any]) -> tuple[dict[str, Any], Status | None]:
    """One output line and its status; None where the row itself cannot be used."""
    try:
        verdict = _evaluate(
            options,
            kernel_code=row["kernel_code"],
            reference_code=row["problem_code"],
            input_shapes=row.get("input_shapes"),
            kernel_name=str(row["id"]),
        )
    except KbRayError as error:
        return {"id": row["id"], "error": str(error)}, None
    return {"id": row["id"], **answer(verdict)}, verdict.status


def _evaluate(options: argparse.Namespace, **what: Any) -> Verdict:
    return evaluate_here(
        bench_request(
            **what,
            n_correctness=options.n_correctness,
            n_trials=options.n_trials,
            timeout_s=options.timeout,
            device=None if options.device == "auto" else options.device,
        )
    )


def _exit_code(statuses: set[Status]) -> int:
    if Status.INFRA_ERROR in statuses:
        return 3
    return 0 if statuses <= {Status.OK} else 1


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
