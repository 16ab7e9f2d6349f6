"""`python -m kb_ray.tasks check SPEC`: loads tasks and runs their references; `prepare` writes training files.

Exit code: 0 all loaded and none failed, 1 some did not, 2 unusable arguments, 3 our own failure. References
are strangers' code and run in the verifier's sandbox, never here.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from kb_ray.env_vars import KERNELBENCH_ROOT, SETTING_PREFIX, load_dotenv
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.exiting import end
from kb_ray.flag_parser import FlagParser
from kb_ray.tasks import check, entries
from kb_ray.tasks.kernelbook import kernelbook_table
from kb_ray.tasks.prepare import (
    INSTRUCTION,
    LABELS,
    LABELS_FILE,
    SFT_FILE,
    TRITON,
    PairColumns,
    check_pairs,
    prepare,
)  # fmt: skip
from kb_ray.tasks.quality import TaskReport
from kb_ray.tasks.rows import FIELDS, read_columns
from kb_ray.tasks.sources import check_mapping
from kb_ray.tasks.table import Table, file_table

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CPU_MAX_BYTES = 1 << 30
_WIDEST_ID = 60
_MAX_BYTES_HELP = (
    "do not run tasks whose inputs, weights and outputs together take more; K, M, G count 1024 (1G on a CPU, "
    "no limit on a GPU)"
)
_COLUMN_HELP = "of file: sources, the column that holds a field, such as code=torch_source; repeatable"
_LONGEST_S = 3600
_PAIRS = (TRITON, INSTRUCTION)
"""Fields of a row that `prepare` reads and a run does not."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    load_dotenv()
    try:
        options = _parser().parse_args(argv)
        return _check(options) if options.command == "check" else _prepare(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KbRayError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(prog="python -m kb_ray.tasks", description="Look at tasks before they are used.")
    commands = parser.add_subparsers(dest="command", required=True)
    looking = commands.add_parser("check", help="load tasks, run their references, say what is wrong with them")
    add = looking.add_argument
    add("specs", nargs="+", metavar="SPEC", help="builtin, folder:PATH, file:PATH, kernelbench:1,2, kernelbook[:PATH]")
    add("--kernelbench-root", metavar="FOLDER", help="a checkout of KernelBench (KERNELBENCH_ROOT)")
    add("--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU where there is one")
    add("--max-bytes", type=_bytes, metavar="N", help=_MAX_BYTES_HELP)
    add("--timeout", type=_seconds, default=60.0, help="seconds for each phase of a reference (%(default)s)")
    add("--json", metavar="FILE", help="also write everything as JSON")
    making = commands.add_parser("prepare", help=f"write {SFT_FILE} and {LABELS_FILE}")
    add = making.add_argument
    add(
        "spec", nargs="?", default="kernelbook", metavar="SPEC", help="kernelbook[:PATH], or file:PATH with triton_code"
    )
    add("--output", type=Path, default=Path("data/processed"), metavar="FOLDER", help="where to (%(default)s)")
    for command in (looking, making):
        add = command.add_argument
        add("--limit", type=_positive, metavar="N", help="the first N tasks only")
        add("--column", action="append", default=[], metavar="FIELD=COLUMN", help=_COLUMN_HELP)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0 and up to {_LONGEST_S}")
    return found


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes such as 500000000 or 2G")
    return int(match[1]) * _UNITS[match[2].upper()]


def _check(options: argparse.Namespace) -> int:
    # The evaluator's modules are needed from here on only.
    from kb_ray.bench.api import usable
    from kb_ray.bench.inspect import Inspector

    device = usable(options.device)
    max_bytes = _CPU_MAX_BYTES if options.max_bytes is None and device == "cpu" else options.max_bytes
    columns = read_columns(options.column)
    check_mapping(columns, options.specs)
    root = options.kernelbench_root or _root_of_environment()
    found = [entry for spec in options.specs for entry in entries(spec, root, columns)][: options.limit]
    if options.json and not Path(options.json).absolute().parent.is_dir():
        raise ConfigError(f"--json {options.json}: there is no such folder")
    if options.json and Path(options.json).is_dir():
        raise ConfigError(f"--json {options.json}: that is a folder, name a file")
    width = min(max(len(entry.key) for entry in found), _WIDEST_ID)
    print(check.heading(width), flush=True)
    checked = list[TaskReport]()
    with Inspector(device, options.timeout, max_bytes) as inspector:
        for item in check.reports(found, inspector):
            checked.append(item)
            print(check.row(item, width), flush=True)
    print(check.summary_text(checked))
    if options.json:
        _write(Path(options.json), check.as_json(checked, options.specs, device))
    return 0 if all(item.loads and item.runs is not False for item in checked) else 1


def _root_of_environment() -> str | None:
    """What a run takes for --kernelbench-root where the flag is not given."""
    return os.environ.get(SETTING_PREFIX + KERNELBENCH_ROOT) or os.environ.get(KERNELBENCH_ROOT)


def _prepare(options: argparse.Namespace) -> int:
    given = read_columns(options.column, (*FIELDS, *_PAIRS))
    table = _table(options.spec, {field: column for field, column in given.items() if field not in _PAIRS}, given)
    check_pairs(table, given, options.spec)
    try:
        done = prepare(table, PairColumns.of(given), options.output, _note, options.limit)
    except OSError as error:
        raise ConfigError(f"--output {options.output}: {error.strerror or error}") from error
    labels = ", ".join(f"{label} {done.labels[label]}" for label in LABELS.values() if done.labels[label])
    print(f"{options.output / SFT_FILE}: {done.rows} rows")
    total = done.labels.total()
    print(f"{options.output / LABELS_FILE}: {total} rows ({labels or 'none'}); {done.skipped} skipped")
    return 0 if done.rows else 1


def _table(spec: str, columns: dict[str, str], given: dict[str, str]) -> Table:
    """What `spec` offers, with the columns of pairs beside those of tasks."""
    source, colon, path = spec.partition(":")
    wanted = {*_PAIRS, *given.values()}
    if source == "file" and path:
        return file_table(path, columns, wanted)
    if source == "kernelbook" and bool(colon) == bool(path):
        check_mapping(columns, [spec])
        return kernelbook_table(path or None, wanted)
    raise ConfigError(f"cannot prepare {spec!r}: give kernelbook, kernelbook:PATH or file:PATH")


def _note(line: str) -> None:
    print(f"skipped: {line}", file=sys.stderr)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path}: {error.strerror or error}") from error


if __name__ == "__main__":
    end(main)
