"""Exports of a large synthetic store: seconds and peak memory of each view, each in a process of its own.

    python -m benchmarks.export [--episodes 100000] [--folder DIR] [--views sft rl ...]

The store is made first (seeded, about 15 kB of text an episode in two turns, 16 samples a task), in parts, and
compacted. Prints a Markdown table. Knows nothing of what the views hold.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kb_ray.prompts.opening import prompt_hash
from kb_ray.records import Completion, Environment, Episode, Message, Stage, Status, StopReason, Task, Turn, Verdict
from kb_ray.traces.layout import part_key
from kb_ray.traces.run import episode_id
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import LocalStore

SAMPLES = 16
PART_ROWS = 500
VIEWS = ("raw", "sft", "rl", "preference", "seed1")
_LINE = 64
# Near-duplicates cost the most where answers are many and short.
_MORE = {"sft": ("--near-duplicates", "0.95")}
_WORDS = (
    "tl.load",
    "tl.store",
    "mask",
    "offsets",
    "BLOCK",
    "pid",
    "acc",
    "tl.dot",
    "x_ptr",
    "stride",
    "+",
    "*",
    "(",
    ")",
)


def episodes(count: int) -> Iterator[Episode]:
    """`count` episodes of two turns, half of them solved at the second."""
    draw = random.Random(7)
    for index in range(count):
        number, sample = divmod(index, SAMPLES)
        reference = f"class Model(nn.Module):\n    # {number}\n" + _text(draw, 1500)
        task = Task(
            task_id=f"kernelbook/{number}", source="kernelbook", level=number % 3 + 1, name=f"Net{number}",
            reference_code=reference, style="module", entry_point="Model",
        )  # fmt: skip
        messages = [Message(role="user", content=f"Rewrite this.\n{reference}")]
        turns = [_turn(draw, messages, 0, right=False)]
        messages.append(Message(role="user", content="It does not compile."))
        turns.append(_turn(draw, messages, 1, right=bool(draw.randrange(2))))
        yield Episode(
            episode_id=episode_id(task.task_id, sample, 1, "f"), run_id="run", task=task, sample=sample, attempt=1,
            turns=tuple(turns), stop_reason=StopReason.MAX_TURNS, best_turn=1, messages=tuple(messages),
            created_at="2026-01-01T00:00:00+00:00",
        )  # fmt: skip


def _turn(draw: random.Random, messages: list[Message], index: int, *, right: bool) -> Turn:
    asked, code = prompt_hash(messages), _text(draw, 2500)
    text = f"Here it is.\n```python\n{code}```"
    env = Environment(device="cuda", gpu="NVIDIA H100 80GB HBM3")
    if right:
        verdict = Verdict.of(Status.OK, Stage.TIMING, speedup=draw.lognormvariate(0, 0.7), trusted=True, env=env)
    else:
        verdict = Verdict.of(Status.MISMATCH, Stage.FULL, trusted=True, env=env)
    messages.append(Message(role="assistant", content=text, reasoning=_text(draw, 1000)))
    return Turn(
        index=index, prompt_hash=asked, triton_code=code, feedback_given=None, verdict=verdict,
        completion=Completion(text=text, reasoning=messages[-1].reasoning, finish_reason="stop", model="m"),
    )  # fmt: skip


def _text(draw: random.Random, size: int) -> str:
    return "\n".join(draw.choices(_lines(), k=size // _LINE))


@cache
def _lines() -> list[str]:
    draw = random.Random(3)
    return [" ".join(f"{draw.choice(_WORDS)}{draw.randrange(100)}" for _ in range(_LINE // 8)) for _ in range(5000)]


def make_store(folder: Path, count: int) -> None:
    """Parts of 500 episodes, then compacted; the parts go."""
    store, held = LocalStore(str(folder)), list[Episode]()
    for episode in episodes(count):
        held.append(episode)
        if len(held) == PART_ROWS:
            data = table_bytes(held)
            store.put_if_absent(part_key(data), data)
            held = []
    if held:
        data = table_bytes(held)
        store.put_if_absent(part_key(data), data)


def _run(name: str, command: list[str], out: Path) -> None:
    """Runs a command and prints its row. Peak memory is asked for while it runs: what the kernel reports of ended
    children begins with their parent's own."""
    started, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        peak = max(peak, _peak_kib(process.pid))
        time.sleep(0.3)
    assert process.stdout is not None
    told = process.stdout.read().split()
    if process.returncode:
        sys.exit(f"{name} failed")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    took = time.perf_counter() - started
    print(f"| {name}: {told[0] if told else 0} | {took:.0f} | {peak / 1024:.0f} | {size:.0f} |", flush=True)


def _peak_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def main() -> None:
    """Makes the store, then exports each view and prints a row for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where store and exports go, kept; else a temporary one")
    parser.add_argument("--make", action="store_true", help="only make the store in the folder")
    parser.add_argument("--views", nargs="+", default=VIEWS, choices=VIEWS)
    given = parser.parse_args()
    if given.make:
        print(given.episodes)
        make_store(given.folder / "store", given.episodes)
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="kb-export-"))
    print("| what | seconds | peak MiB | output MB |\n|---|---|---|---|", flush=True)
    store = folder / "store"
    if not store.exists():
        made = ["--make", "--folder", str(folder), "--episodes", str(given.episodes)]
        _run("make the store, episodes", [sys.executable, "-m", "benchmarks.export", *made], store)
    _run("compact, episodes", [sys.executable, "-m", "kb_ray.compact", str(store), "--delete-parts"], store)
    for view in given.views:
        command = [sys.executable, "-m", "kb_ray.export", str(store), "--view", view, *_MORE.get(view, ())]
        _run(f"{view}, rows", [*command, "--output", str(folder / view), "--overwrite"], folder / view)
    if given.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
