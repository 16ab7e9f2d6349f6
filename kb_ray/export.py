"""`python -m kb_ray.export STORE --view sft|rl|preference|raw|seed1|kernelbench`: training data from a trace store.

Writes a folder with the rows and a card, or nothing. Exit codes: 0 done, 2 unusable input or nothing left, 1 the
store or the hub fails. Knows the flags; what a view is stands in `exporting`.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence

from kb_ray.env_vars import load_dotenv
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.exiting import end, exit_on_signals
from kb_ray.exporting import files, hub
from kb_ray.exporting.making import Made, make
from kb_ray.exporting.options import VIEWS, ExportOptions, Filters
from kb_ray.flag_parser import FlagParser
from kb_ray.statuses import Status
from kb_ray.tasks.quality import FLAGS
from kb_ray.traces.reading import Survey, survey
from kb_ray.traces.store import local_path, open_to_read

_FORMS = {
    "keep": ("sft",), "target_speedup": ("sft",), "conversation": ("sft",), "reasoning": ("sft", "preference"),
    "margin": ("preference",), "pairs_per_task": ("preference",), "same_prompt": ("preference",),
    "allow_untimed": ("rl",),
}  # fmt: skip
"""Views that a flag shapes, by field of ExportOptions."""
_NUMBERS = ("min_speedup", "max_speedup", "near_duplicates", "target_speedup", "margin")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        load_dotenv()
        given = _parser().parse_args(arguments)
        options = _options(given)
        folder, store = local_path(given.output or f"exports/{options.view}"), open_to_read(given.store)
        files.apart(folder, store.uri)
        files.check(folder.absolute(), overwrite=given.overwrite)
        if given.push_to_hub:
            hub.check(given.push_to_hub)
        found = survey(store, skip_corrupt=given.skip_corrupt)
        command = shlex.join(["python", "-m", "kb_ray.export", *arguments])
        made = make(found, options, folder, command=command, overwrite=given.overwrite)
        _tell(made, found)
        if given.push_to_hub:
            print(f"pushed to {hub.push(made.folder, given.push_to_hub, public=given.public)}")
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def _tell(made: Made, found: Survey) -> None:
    for file in found.damaged:
        print(f"skipped {file.key}: {file.reason}", file=sys.stderr)
    print(f"{made.rows} rows of {found.episodes} episodes in {made.folder}; {made.account}")
    if made.loader:
        print(made.loader)


def _check_forms(given: argparse.Namespace) -> None:
    """ConfigError for a flag that would do nothing, or a number that is none."""
    for name, views in _FORMS.items():
        if given.view not in views and getattr(given, name, None) not in (None, False):
            raise ConfigError(f"--{name.replace('_', '-')} is for {' and '.join(views)}, --view is {given.view}")
    if given.target_speedup is not None and given.keep != "fast":
        raise ConfigError("--target-speedup says what --keep fast means: add that")
    others = [entry for entry in given.license if not entry.startswith("kernelbench=")]
    if others and given.view == "kernelbench":
        raise ConfigError(f"--license {others[0]}: --view kernelbench holds KernelBench's tasks alone")
    if given.public and not given.push_to_hub:
        raise ConfigError("--public says how --push-to-hub makes a repository: add that")
    for name in _NUMBERS:
        value = getattr(given, name)
        if value is not None and not math.isfinite(value):
            raise ConfigError(f"--{name.replace('_', '-')} {value:g}: give a number")


def _options(given: argparse.Namespace) -> ExportOptions:
    _check_forms(given)
    if given.near_duplicates is not None and not 0.0 < given.near_duplicates <= 1.0:
        raise ConfigError(f"--near-duplicates {given.near_duplicates:g}: give a share above 0, up to 1")
    if given.margin is not None and given.margin < 1.0:
        raise ConfigError(f"--margin {given.margin:g}: at least 1")
    if given.pairs_per_task is not None and given.pairs_per_task < 1:
        raise ConfigError(f"--pairs-per-task {given.pairs_per_task}: at least 1")
    pairs = [entry.partition("=") for entry in given.license]
    if any(not source or not name for source, _, name in pairs):
        raise ConfigError("--license: write SOURCE=IDENTIFIER, as in kernelbook=mit")
    return ExportOptions(
        view=given.view,
        filters=Filters(
            status=frozenset(given.status), source=frozenset(given.source), level=frozenset(given.level),
            min_speedup=given.min_speedup, max_speedup=given.max_speedup, with_flag=frozenset(given.flag),
            without_flag=frozenset(given.without_flag), exclude_flagged=given.exclude_flagged, trusted=given.trusted,
        ),
        near_duplicates=given.near_duplicates, licenses={source: name for source, _, name in pairs},
        **{name: value for name in _FORMS if (value := getattr(given, name)) is not None},
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = FlagParser(
        prog="python -m kb_ray.export", description="Training data from a trace store.", allow_abbrev=False
    )
    add = parser.add_argument
    add("store", metavar="STORE", help="folder or s3://bucket/prefix of a run")
    add("--view", choices=VIEWS, required=True, help="what the rows are")
    add("--output", metavar="DIR", help="folder to make (exports/VIEW)")
    add("--overwrite", action="store_true", help="replace the earlier export that the folder holds")
    add("--skip-corrupt", action="store_true", help="leave out files that cannot be read, and name them")

    parser.set_defaults(status=[], source=[], level=[], flag=[], without_flag=[], license=[])
    _add_filters(parser.add_argument_group("filters (repeatable ones: any of the values)"))
    _add_forms(parser.add_argument_group("forms"))
    add("--license", action="append", metavar="SOURCE=ID", help="licence of a source's programs, where you know it")
    add("--push-to-hub", metavar="REPO", help="upload to this data set on the Hugging Face hub; needs HF_TOKEN")
    add("--public", action="store_true", help="make a new repository public (private)")
    return parser


def _add_filters(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    statuses = [str(status) for status in Status]
    add("--status", action="append", choices=statuses, metavar="STATUS", help="of the answer: ok, mismatch, ...")
    add("--min-speedup", type=float, metavar="X", help="trusted speedup of the answer at least")
    add("--max-speedup", type=float, metavar="X", help="trusted speedup of the answer at most")
    add("--source", action="append", metavar="NAME", help="builtin, kernelbench, kernelbook, folder, file")
    add("--level", action="append", type=int, metavar="N", help="of the task")
    add(
        "--flag",
        action="append",
        metavar="FLAG",
        help=f"held against task or verdict: {', '.join(list(FLAGS)[:2])}, ...",
    )
    add("--without-flag", action="append", metavar="FLAG", help="not held against task or verdict")
    add("--exclude-flagged", action="store_true", help="no task that a kernel which computes nothing would pass")
    add("--trusted", action="store_true", help="only verdicts of a GPU that nothing is held against")
    add("--near-duplicates", type=float, metavar="SHARE", help="count answers this much alike once; 0.95 is cautious")


def _add_forms(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--keep", choices=("correct", "fast", "best", "all"), help="sft: which answer (correct)")
    add("--target-speedup", type=float, metavar="X", help="sft: what --keep fast means (1.0)")
    add("--conversation", choices=("whole", "last"), help="sft: all turns or one (whole)")
    add("--reasoning", choices=("drop", "field", "inline"),
        help="sft, preference: leave it out, as reasoning_content, or in <think> tags (drop)")  # fmt: skip
    add("--margin", type=float, metavar="X", help="preference: how much faster is faster (1.2)")
    add("--pairs-per-task", type=int, metavar="N", help="preference: at most (4)")
    add("--same-prompt", action="store_true", default=None, help="preference: only answers to the very same messages")
    add(
        "--allow-untimed",
        action="store_true",
        default=None,
        help="rl: a CPU's verdicts are rewards too, for correctness",
    )


if __name__ == "__main__":
    exit_on_signals()
    end(main)
