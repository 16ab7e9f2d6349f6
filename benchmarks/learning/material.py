"""Files for a run of the learning experiment: tasks of each split, and answers that the fine-tuning is shown.

    python -m benchmarks.learning.material FOLDER [--traces 240]

`train.jsonl`, `seen.jsonl`, `longer.jsonl`, `new_mix.jsonl`, `slow.jsonl` are sources for `--tasks file:...`;
`shown.jsonl` are the first of `train.jsonl`, and `answers.jsonl` is a script with a right kernel for each of those:
`python -m kb_ray.generate --tasks file:shown.jsonl --model scripted:answers.jsonl` has them verified like any answer.
Knows no model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning.family import Spec, kernel, reference
from benchmarks.learning.splits import SPLITS, read, shown_tuned, train


def task_row(split: str, spec: Spec) -> dict[str, Any]:
    """A row of a task file."""
    return {"task_id": f"{split}/{spec.name}", "name": spec.name, "level": 1, "reference_code": reference(spec)}


def script_line(spec: Spec) -> dict[str, Any]:
    """What the scripted model answers to a program of `train`."""
    answer = f"<triton>\n{kernel(spec, shown_tuned(spec)).strip()}\n</triton>"
    return {"task": task_row("train", spec)["task_id"], "turns": [answer]}


def write(folder: Path, traces: int) -> list[Path]:
    """All files; their paths."""
    trained = train()
    files: dict[str, Iterable[dict[str, Any]]] = {
        "train": [task_row("train", spec) for spec in trained],
        "shown": [task_row("train", spec) for spec in trained[:traces]],
        "answers": [script_line(spec) for spec in trained[:traces]],
        **{split: [task_row(split, spec) for spec in read(split)] for split in SPLITS},
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, rows in files.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        written.append(path)
    return written


def main(argv: Sequence[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.material", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--traces", type=int, default=240, help="programs of `train` that are shown with a kernel")
    given = parser.parse_args(argv)
    for path in write(given.folder, given.traces):
        print(path)


if __name__ == "__main__":
    main()
