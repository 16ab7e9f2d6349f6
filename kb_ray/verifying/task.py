"""What must hold of the task that an episode says it is about (pure).

Its id names source, level and name where the source makes it of them. Of everything else it says, a few bytes are kept,
so that episodes of one task can be compared.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Collection, Iterator

from kb_ray.records import Task
from kb_ray.verifying.findings import MARK_BYTES, TASK_FIELDS, Found

_NAMED = {
    "builtin": "builtin/{level}/{name}",
    "folder": "folder/",
    "kernelbench": "kernelbench/{level}/{name}",
    "kernelbook": "kernelbook/",
}
"""How the ids of a source begin. Rows of a file may have ids of their own."""


def task_faults(task: Task) -> Iterator[Found]:
    """What the task says of itself and its id or its program deny."""
    begins = _NAMED.get(task.source, "").format(level=task.level, name=task.name)
    if not task.task_id.startswith(begins):
        yield "task", f"a task of source {task.source}, level {task.level} and name {task.name} has another id"
    if task.source == "folder" and not task.task_id.endswith(f"/{task.name}"):
        yield "task", f"its name is {task.name}, and its id names another file"
    # As Python reads names.
    if task.entry_point not in unicodedata.normalize("NFKC", task.reference_code):
        yield "task", f"its entry point {task.entry_point} is not in its reference program"


def marks(task: Task, held: Collection[str]) -> bytes:
    """MARK_BYTES of a hash of each of TASK_FIELDS, in order; zeros for those not among `held`, the file's columns."""
    told = task.model_dump(mode="json")
    return b"".join(_mark(told[name]) if name in held else bytes(MARK_BYTES) for name in TASK_FIELDS)


def _mark(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value).encode()).digest()[:MARK_BYTES]
