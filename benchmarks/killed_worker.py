"""What it costs a run when one of its bench workers is killed: a run with one, with all, and with all but for a while.

    python -m benchmarks.killed_worker --workers 2 --candidates 300 --output killed.json

Three real runs of `kb_ray.generate` over the same tasks, each right at once and each timed. In the third, one worker's
process is killed once a third of the episodes is written. Every run is checked with `kb_ray.verify`; exit code 1 where
one is not complete or a right kernel was not told to be right. Writes JSON, prints a table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import candidates
from kb_ray.bench.sweep import base_dir
from kb_ray.traces.run import read_run
from kb_ray.traces.store import LocalStore
from kb_ray.traces.views import episodes

_PATIENCE_S = 1200.0
_STOPPING_S = 60.0
"""For a run that is asked to stop: it flushes and takes its Ray down."""


def material(folder: Path, count: int, shape: tuple[int, int]) -> None:
    """`tasks.jsonl` and `answers.jsonl`: one right kernel for each of `count` tasks."""
    task = candidates.relu_module(shape)
    rows, answers = [], []
    for number in range(count):
        code = f"# Program {number}.\n{task.reference_code}"
        task_id = f"killed/{number}"
        rows.append({"task_id": task_id, "name": f"relu_{number}", "level": 1, "reference_code": code})
        answers.append({"task": task_id, "turns": [f"```python\n{candidates.right_module(number)}\n```"]})
    for name, lines in (("tasks", rows), ("answers", answers)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _owners(store: LocalStore) -> dict[str, int]:
    """Processes of the workers that serve the run, by name."""
    run = read_run(store)
    found = {}
    for folder in base_dir().glob(f"kb-bench-{run.run_id}-*") if run else ():
        owner = folder / "owner"
        if owner.exists():
            found[folder.name] = int(owner.read_text().split()[0])
    return found


def _written(store: LocalStore) -> int:
    return sum(1 for _ in episodes(store))


def _kill_one(run: subprocess.Popen[bytes], store: LocalStore, after: int) -> dict[str, Any]:
    """Kills a worker once `after` episodes are written."""
    began = time.monotonic()
    while _written(store) < after:
        if run.poll() is not None or time.monotonic() - began > _PATIENCE_S:
            raise SystemExit(f"the run never came to {after} episodes (exit code {run.poll()})")
        time.sleep(0.2)
    name, pid = min(_owners(store).items())
    os.kill(pid, signal.SIGKILL)
    return {"killed": name, "at_episode": _written(store), "at_unix_s": time.time()}


def _end(run: subprocess.Popen[bytes]) -> None:
    """No run outlives its measurement: the folder that it writes to is removed."""
    if run.poll() is not None:
        return
    run.terminate()
    try:
        run.wait(_STOPPING_S)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()


def measure(folder: Path, name: str, workers: int, kill_after: int | None) -> dict[str, Any]:
    """One run, and what it came to."""
    output = folder / name
    command = [
        sys.executable, "-m", "kb_ray.generate", "--tasks", f"file:{folder / 'tasks.jsonl'}",
        "--model", f"scripted:{folder / 'answers.jsonl'}", "--output", str(output), "--bench-workers", str(workers),
        "--save-interval", "1",
    ]  # fmt: skip
    store = LocalStore(str(output))
    with (folder / f"{name}.log").open("wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            told = _kill_one(run, store, kill_after) if kill_after is not None else {}
            code = run.wait(_PATIENCE_S)
        finally:
            _end(run)
    checked = subprocess.run(
        [sys.executable, "-m", "kb_ray.verify", str(output), "--json"], capture_output=True, text=True, check=False
    )
    if code or checked.returncode:
        sys.stderr.write((folder / f"{name}.log").read_text(errors="replace")[-4000:])
    return _figures(store, code, checked.returncode, told)


def _figures(store: LocalStore, code: int, verified: int, told: dict[str, Any]) -> dict[str, Any]:
    kept = list(episodes(store))
    verdicts = [turn.verdict for episode in kept for turn in episode.turns]
    ended = sorted(datetime.fromisoformat(episode.created_at).timestamp() for episode in kept)
    return told | {
        "exit_code": code, "verify": verified, "episodes": len(kept),
        "verdicts_per_minute": 60 * (len(ended) - 1) / (ended[-1] - ended[0]),
        "longest_pause_s": max(later - earlier for earlier, later in itertools.pairwise(ended)),
        "statuses": dict(Counter(str(verdict.status) for verdict in verdicts)),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measures; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.killed_worker", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--rows", type=int, default=candidates.SMALL[0], help="of each input (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("killed.json"))
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="killed-") as scratch:
        folder = Path(scratch)
        material(folder, given.candidates, (given.rows, candidates.SMALL[1]))
        runs = {
            "one worker": measure(folder, "one", 1, None),
            "all workers": measure(folder, "all", given.workers, None),
            "one of them killed": measure(folder, "killed", given.workers, given.candidates // 3),
        }
    given.output.write_text(json.dumps(runs, indent=2) + "\n", encoding="utf-8")
    print("| run | episodes | statuses | verdicts a minute | longest pause, s |\n|---|---|---|---|---|")
    for name, one in runs.items():
        print(
            f"| {name} | {one['episodes']} | {one['statuses']} | {one['verdicts_per_minute']:.0f} "
            f"| {one['longest_pause_s']:.1f} |"
        )
    whole = all(
        (one["exit_code"], one["verify"], one["episodes"], one["statuses"])
        == (0, 0, given.candidates, {"ok": given.candidates})
        for one in runs.values()
    )
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
