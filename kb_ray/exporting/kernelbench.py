"""View `kernelbench`: kernels as the files that KernelBench's own evaluation of generations reads.

`level_L_problem_P_sample_S_kernel.py`, for KernelBench's problems only, and for kernels that define `ModelNew`: that
program calls nothing else. Does not know files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.raw import best_passes
from kb_ray.exporting.sieve import Sieve
from kb_ray.traces.reading import Survey, read_episodes

_ENTRY = re.compile(r"^class ModelNew\b", re.MULTILINE)


def rows(found: Survey, options: ExportOptions, sieve: Sieve) -> Iterator[dict[str, Any]]:
    """{"file": name, "text": code} for the best turn of each episode, right or wrong."""
    for episode in filter(sieve.episode, read_episodes(found)):
        task = episode.task
        if task.source != "kernelbench" or task.level is None or task.problem_id is None:
            sieve.refuse("answers to tasks that are not KernelBench's")
        elif episode.best_turn is None or (code := episode.turns[episode.best_turn].triton_code) is None:
            sieve.refuse("episodes without code")
        elif not _ENTRY.search(code):
            sieve.refuse("answers without ModelNew")
        elif best_passes(episode, sieve):
            name = f"level_{task.level}_problem_{task.problem_id}_sample_{episode.sample}_kernel.py"
            yield {"file": name, "text": code}
