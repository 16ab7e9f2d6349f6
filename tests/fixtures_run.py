"""Whole runs of the command for tests: a small workload of own tasks, and the command as a process of its own.

The workload is quick on the interpreter: each task is wrong at its first turn and right at its second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from kb_ray.verifying.checking import check
from tests.processes import outcome

ROOT = Path(__file__).resolve().parent.parent

REFERENCE = """import torch

input_shapes = {{"x": {{"shape": [64, 32], "dtype": "float32"}}}}


def reference_impl(x):
    return x * {factor} + 1.0
"""

ANSWER = """Here is the kernel.

```python
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * {factor} + {shift}, mask=mask)


def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
```
"""


@dataclass(frozen=True)
class Workload:
    """A folder of tasks and the script of their answers."""

    tasks: Path
    script: Path
    task_ids: tuple[str, ...]

    def arguments(self, output: str, *more: str, n_correctness: int = 2, url: str = "") -> list[str]:
        """Flags of a run, whose answers come from `url` or from the script; more input sets make it last longer."""
        model = ["--vllm-url", url] if url else ["--model", f"scripted:{self.script}"]
        return [
            "--tasks", f"folder:{self.tasks}", *model, "--multi-turn",
            "--output", output, "--n-correctness", str(n_correctness), "--bench-workers", "1",
            # Where there is a GPU too: the tasks are of a size for the interpreter.
            "--device", "cpu", *more,
        ]  # fmt: skip


@dataclass
class Command:
    """`python -m kb_ray.generate` as a process, in a cluster that is there already or its own."""

    env: dict[str, str] = field(default_factory=dict)

    def start(self, arguments: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kb_ray.generate", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env={**os.environ, **self.env, **(env or {})},
        )  # fmt: skip

    def run(self, arguments: list[str], env: dict[str, str] | None = None, timeout_s: float = 240) -> tuple[int, str]:
        """(exit code, everything it printed)."""
        return outcome(self.start(arguments, env), timeout_s)


def make_workload(folder: Path, count: int) -> Workload:
    """`count` tasks named t00, t01, ... under `folder`."""
    tasks = folder / "tasks"
    tasks.mkdir(parents=True)
    lines = []
    for i in range(count):
        factor = f"{1.5 + i}"
        (tasks / f"t{i:02d}.py").write_text(REFERENCE.format(factor=factor))
        turns = [ANSWER.format(factor=factor, shift="2.0"), ANSWER.format(factor=factor, shift="1.0")]
        lines.append(json.dumps({"task": f"folder/t{i:02d}", "turns": turns}))
    script = folder / "script.jsonl"
    script.write_text("\n".join(lines) + "\n")
    return Workload(tasks, script, tuple(f"folder/t{i:02d}" for i in range(count)))


@pytest.fixture(scope="session")
def command(ray_cluster: str) -> Command:
    """The command, joining the session's cluster."""
    return Command({"RAY_ADDRESS": ray_cluster})


def rows_by_task(output: str) -> Counter[str]:
    """How many rows the store's parts hold for each task; a duplicate shows as 2."""
    import pyarrow.parquet as pq

    store = open_store(output)
    counts: Counter[str] = Counter()
    for key in store.list("parts/"):
        data = store.get(key)
        assert data is not None
        import io

        counts.update(pq.read_table(io.BytesIO(data), columns=["task_id"]).column("task_id").to_pylist())
    return counts


def check_exactly_once(output: str, workload: Workload) -> None:
    """Every task has one row, solved at its second turn after the right feedback, and the store is sound."""
    found = check(open_store(output))
    assert (found.sound, found.state) == (True, "complete"), found
    assert rows_by_task(output) == Counter(dict.fromkeys(workload.task_ids, 1))
    for episode in episodes(open_store(output)):
        assert [str(turn.verdict.status) for turn in episode.turns] == ["mismatch", "ok"]
        assert episode.stop_reason == "success_untimed"
        assert episode.best_turn == 1
        assert episode.turns[0].feedback_given is not None
        assert "CORRECTNESS ERROR" in episode.turns[0].feedback_given
