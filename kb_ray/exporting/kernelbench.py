"""View `kernelbench`: kernels as the files that KernelBench's own evaluation of generations reads.

`levelL/level_L_problem_P_sample_S_kernel.py`: a folder for each level, since what KernelBench writes beside the kernels
names problems and no level. For KernelBench's problems only, and for kernels that define `ModelNew`: that program calls
nothing else. Samples are numbered over the answers that were judged, from 0. Does not know files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from kb_ray.evaluation.attempts import counted
from kb_ray.evaluation.problems import Place, Problems
from kb_ray.exporting.answers import answer_columns, task_columns
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.raw import best_passes
from kb_ray.exporting.sieve import Sieve
from kb_ray.extraction.syntax import outline
from kb_ray.records import REDONE_ON_RESUME
from kb_ray.traces.reading import Survey, read_episodes, read_tables

_ENTRY = "ModelNew"
_IN_BROKEN_CODE = re.compile(rf"^\s*class\s+{_ENTRY}\b", re.MULTILINE)
_COLUMNS = ("task_id", "source", "level", "problem_id", "sample", "stop_reason")
_FAILED = frozenset(reason.value for reason in REDONE_ON_RESUME)


def rows(found: Survey, options: ExportOptions, sieve: Sieve) -> Iterator[dict[str, Any]]:
    """{"file": name, "text": code} and the columns of task and answer, for the best turn of each judged episode.

    ConfigError where two tasks are one problem there.
    """
    found = counted(found).found
    numbers = _numbers(found, options)
    for episode in filter(sieve.episode, read_episodes(found)):
        task, reason = episode.task, episode.stop_reason
        if task.source != "kernelbench" or task.level is None or task.problem_id is None:
            sieve.count("answers to tasks that are not KernelBench's")
        elif reason in REDONE_ON_RESUME:
            sieve.count("episodes that our side or the model's server failed")
        elif episode.best_turn is None or (code := episode.turns[episode.best_turn].triton_code) is None:
            sieve.count("episodes without code")
        elif not defines_entry(code):
            sieve.count(f"answers without {_ENTRY}")
        elif best_passes(episode, sieve):
            number = numbers[task.level, task.problem_id][episode.sample]
            name = f"level_{task.level}_problem_{task.problem_id}_sample_{number}_kernel.py"
            facts = task_columns(task, options.licenses) | answer_columns(episode, episode.turns[episode.best_turn])
            yield {"file": f"level{task.level}/{name}", "text": code} | facts


def defines_entry(code: str) -> bool:
    """Whether a program binds `ModelNew` at its top, by a class or by a name for one; the text decides where it does
    not parse, which is for KernelBench to find."""
    seen = outline(code)
    return _IN_BROKEN_CODE.search(code) is not None if seen is None else _ENTRY in seen.defines


def _numbers(found: Survey, options: ExportOptions) -> dict[Place, dict[int, int]]:
    """Sample of the store -> sample there, by problem.

    Every judged answer takes a number, so that one without a file is a wrong one to KernelBench too.
    """
    problems = Problems("--view kernelbench")
    samples: dict[Place, set[int]] = defaultdict(set)
    for table in read_tables(found, _COLUMNS):
        for row in table.to_pylist():
            wanted = not options.filters.level or row["level"] in options.filters.level
            if not wanted or row["stop_reason"] in _FAILED:
                continue
            place = problems.place(row["task_id"], row["source"], row["level"], row["problem_id"])
            if place is not None:
                samples[place].add(row["sample"])
    return {place: {sample: number for number, sample in enumerate(sorted(held))} for place, held in samples.items()}
