"""Where examples come from: KernelBook, Sakana's archive of CUDA kernels, a file of pairs, our own traces.

Each corpus is a stream of examples in a stable order; what cannot be used comes as the reason why. Knows columns and
ids; not how examples are embedded or kept.
"""

from __future__ import annotations

import ast
import hashlib
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb_ray.errors import ConfigError, TaskError
from kb_ray.records import Episode, Verdict
from kb_ray.retrieve.checking import unfit, with_entry_point
from kb_ray.retrieve.computed import operations
from kb_ray.retrieve.example import Example, Language
from kb_ray.retrieve.program import core
from kb_ray.tasks.hub import load_split
from kb_ray.tasks.kernelbook import CODE_COLUMNS as KERNELBOOK_PROGRAMS
from kb_ray.tasks.kernelbook import DATASET as KERNELBOOK
from kb_ray.tasks.kernelbook import kernelbook_rows
from kb_ray.tasks.program import parse
from kb_ray.tasks.rows import code_column
from kb_ray.tasks.table import file_rows
from kb_ray.traces.layout import sources
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.store import open_store

SAKANA = "SakanaAI/AI-CUDA-Engineer-Archive"
_KERNELS: Mapping[str, Language] = {"triton_code": "triton", "cuda_code": "cuda"}
_SAKANA_COLUMNS = ("PyTorch_Code_Module", "CUDA_Code", "Correct", "CUDA_Speedup_Native", "Task_ID")
_INSTEAD = "where the hub is out of reach, give a local copy with --corpus file:PATH"
_INSTEAD_OF_ARCHIVE = (
    "where the hub is out of reach, give the correct rows of a local copy with --corpus file:PATH, its columns "
    "PyTorch_Code_Module and CUDA_Code under the names pytorch_code and cuda_code"
)
_BATCH = 256
_MARK = "\ufeff"
"""Byte order mark."""

Found = Example | str
"""An example, or why a row is none."""


@dataclass(frozen=True)
class Rows:
    """The rows of a corpus, to be gone through once."""

    found: Iterator[Found]
    total: int | None = None
    """How many rows will be read, where it is known."""

    def __iter__(self) -> Iterator[Found]:
        return self.found


@dataclass(frozen=True)
class Wanted:
    """Which rows of a corpus are wanted."""

    languages: frozenset[Language] = frozenset({"triton", "cuda"})
    sakana_levels: tuple[int, ...] = (1, 2, 3)
    include_incorrect: bool = False
    """Also kernels of the archive that it calls incorrect."""
    plain: Callable[[str], str] = str
    """Writes Triton code as it may be shown."""
    skip_corrupt: bool = False
    """Damaged files of a trace store are left out, and told to `say`."""
    say: Callable[[str], None] = lambda line: None
    refused: Callable[[str], str | None] = lambda code: None
    """Why Triton code must not be shown, in a few words that many rows share; None where it may be."""


def read_corpus(spec: str, wanted: Wanted) -> Rows:
    """The rows of `kernelbook`, `sakana`, `traces:STORE` or `file:PATH`.

    Raises ConfigError, before the first row, where the corpus cannot be had or lacks a column.
    """
    kind, _, place = spec.partition(":")
    if kind in ("traces", "file") and place:
        return _traces(place, wanted) if kind == "traces" else _file(place, wanted)
    if spec == "kernelbook":
        return _kernelbook(wanted)
    if spec == "sakana":
        return _sakana(wanted)
    raise ConfigError(f"--corpus {spec}: give kernelbook, sakana, traces:STORE or file:PATH")


def languages_of(spec: str) -> frozenset[Language]:
    """Languages that a corpus can hold."""
    known: dict[str, frozenset[Language]] = {"sakana": frozenset({"cuda"}), "file": frozenset({"triton", "cuda"})}
    return known.get(spec.partition(":")[0], frozenset({"triton"}))


def content_of(spec: str) -> str | None:
    """16 hex digits that change with what a file or a store of traces holds; None for what is published, and for what
    cannot be read, of which `read_corpus` says why.
    """
    kind, _, place = spec.partition(":")
    if kind == "traces" and place:
        return hashlib.sha256("\n".join(sources(open_store(place))).encode()).hexdigest()[:16]
    try:
        with open(os.path.expanduser(place), "rb") as data:
            return hashlib.file_digest(data, "sha256").hexdigest()[:16] if kind == "file" else None
    except OSError:
        return None


def _kernelbook(wanted: Wanted) -> Rows:
    columns, rows = kernelbook_rows((*KERNELBOOK_PROGRAMS, "triton_code", "entry_point"), _INSTEAD)
    program = code_column(columns, KERNELBOOK, KERNELBOOK_PROGRAMS)
    code_column(columns, KERNELBOOK, ("triton_code",))

    def read() -> Iterator[Found]:
        for task_id, row in rows:
            found = row()
            yield _example(
                wanted, found, program, "triton_code", example_id=task_id, corpus="kernelbook",
                entry_point=found.get("entry_point") or None, init_convention="args_kwargs",
            )  # fmt: skip

    return Rows(read())


def _sakana(wanted: Wanted) -> Rows:
    splits = []
    for level in wanted.sakana_levels:
        rows, columns = load_split(SAKANA, f"level_{level}", _INSTEAD_OF_ARCHIVE)
        for column in _SAKANA_COLUMNS:
            code_column(columns, SAKANA, (column,))
        splits.append((level, rows.select_columns(list(_SAKANA_COLUMNS))))

    def read() -> Iterator[Found]:
        for level, rows in splits:
            for number, row in enumerate(_rows(rows)):
                if not row["Correct"] and not wanted.include_incorrect:
                    yield "kernel is not correct"
                    continue
                yield _example(
                    wanted, row, "PyTorch_Code_Module", "CUDA_Code",
                    example_id=f"sakana/{level}/{row['Task_ID']}_{number}",
                    corpus="sakana", speedup=_speedup(row["CUDA_Speedup_Native"]), correct=bool(row["Correct"]),
                )  # fmt: skip

    return Rows(read(), sum(len(rows) for _, rows in splits))


def _speedup(value: object) -> float | None:
    """What an archive says of speed; None for what is none, such as infinity."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _rows(rows: Any) -> Iterator[dict[str, Any]]:
    """Rows of a data set, a batch at a time."""
    for batch in rows.iter(_BATCH):
        names = list(batch)
        for values in zip(*(batch[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))


def _file(path: str, wanted: Wanted) -> Rows:
    columns, rows = file_rows(path, _KERNELS)
    where = f"file:{path}"
    program = code_column(columns, where)
    code_column(columns, where, tuple(_KERNELS))
    kernels = [(column, language) for column, language in _KERNELS.items() if column in columns]
    stem = Path(path).stem

    def read() -> Iterator[Found]:
        for number, (_, row) in enumerate(rows):
            try:
                found = row()
            except TaskError as error:
                yield f"row {error}"
                continue
            there = [pair for pair in kernels if found.get(pair[0])]
            filled = [pair for pair in there if pair[1] in wanted.languages]
            if not filled:
                yield "of another language" if there else "kernel is missing"
            for column, language in filled:
                ending = f"/{language}" if len(kernels) > 1 else ""
                yield _example(
                    wanted, found, program, column, example_id=f"file/{stem}_{number}{ending}", corpus="file",
                    language=language, entry_point=found.get("entry_point") or None,
                )  # fmt: skip

    # A row with two kernels is two pairs.
    pairs = sum(language in wanted.languages for _, language in kernels)
    return Rows(read(), len(rows) * max(pairs, 1))


def _traces(place: str, wanted: Wanted) -> Rows:
    found = survey(open_store(place), skip_corrupt=wanted.skip_corrupt)
    for file in found.damaged:
        wanted.say(f"left out: {file.key} ({file.reason})")

    def read() -> Iterator[Found]:
        best: dict[str, tuple[tuple[bool, float], Episode, Verdict, str]] = {}
        for episode in read_episodes(found):
            for turn in episode.turns:
                verdict, code = turn.verdict, turn.triton_code
                merit = (verdict.trusted, verdict.speedup or 0.0 if verdict.trusted else 0.0)
                held = best.get(episode.task.task_id)
                if verdict.correct and code is not None and (held is None or merit > held[0]):
                    best[episode.task.task_id] = (merit, episode, verdict, code)
        for task_id, (_, episode, verdict, code) in sorted(best.items()):
            task = episode.task
            yield _example(
                wanted, {"program": task.reference_code, "kernel": code}, "program", "kernel", example_id=task_id,
                corpus="traces", speedup=verdict.speedup, correct=verdict.correct, verdict=str(verdict.status),
                trusted=verdict.trusted, entry_point=task.entry_point, init_convention=task.init_convention,
            )  # fmt: skip

    return Rows(read())


def _example(
    wanted: Wanted,
    row: Mapping[str, Any],
    program: str,
    kernel: str,
    *,
    language: Language | None = None,
    **fields: Any,
) -> Found:
    """The example of a row whose columns `program` and `kernel` hold its code, or what is wrong with it."""
    language = language or ("cuda" if kernel == "CUDA_Code" else "triton")
    code, translated = row.get(program), row.get(kernel)
    if not _is_text(code) or not _is_text(translated):
        return "program is missing" if not _is_text(code) else "kernel is missing"
    if not _is_encodable(str(code)) or not _is_encodable(str(translated)):
        return "program or kernel holds half a character"
    entry_point = fields.get("entry_point")
    if entry_point is not None and not (_is_text(entry_point) and _is_encodable(str(entry_point))):
        return "entry_point is no text"
    program_code, kernel_code = str(code).removeprefix(_MARK), str(translated).removeprefix(_MARK)
    try:
        tree = parse(program_code)
    except TaskError:
        return "program is no valid Python"
    if not any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in ast.walk(tree)):
        return "program defines nothing"
    if reason := unfit(kernel_code, language):
        return reason
    if language == "triton":
        kernel_code = with_entry_point(wanted.plain(kernel_code))
        if reason := wanted.refused(kernel_code):
            return reason
    own = core(program_code)
    return Example(
        language=language, digest=own.digest, text=own.text, operations=operations(program_code, entry_point),
        pytorch_code=program_code, kernel_code=kernel_code, **fields,
    )  # fmt: skip


def _is_encodable(text: str) -> bool:
    """Whether a text can be written: half of a surrogate pair, as JSON may spell it, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def wanted_specs(given: Collection[str], languages: frozenset[Language]) -> list[str]:
    """The corpora of a build: those given, or KernelBook and the archive, as far as they hold a wanted language."""
    return [spec for spec in given or ("kernelbook", "sakana") if languages_of(spec) & languages]
