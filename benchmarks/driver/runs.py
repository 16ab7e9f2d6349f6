"""One run of the driver against a waiting model and sleeping actors, and what it left: samples, spans, a store.

Starts processes and ends them. What the numbers amount to is figures.py's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.driver.actor import MEAN_S, SPANS
from kb_ray import env_vars

ROOT = Path(__file__).resolve().parents[2]
SAMPLES_PER_TASK = 8


@dataclass(frozen=True)
class Setting:
    """One run."""

    episodes: int
    actors: int = 64
    replicas: int = 8
    slots: int = 32
    """Requests that each replica answers at once."""
    model_s: float = 2.0
    """Mean seconds of an answer."""
    bench_s: float = 0.8
    """Mean seconds of a verdict."""
    save_interval: int = 10


@dataclass(frozen=True)
class Traces:
    """What a run left."""

    setting: Setting
    began: float
    """On the clock of the samples."""
    seconds: float
    output: str
    samples: list[dict[str, Any]]
    spans: list[list[tuple[float, float]]]
    """When each actor was busy."""
    said: str


def run(setting: Setting, folder: Path, output: str | None = None, profile: Path | None = None) -> Traces:
    """The run, from the command's start to its end. RuntimeError where it did not end well."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spans").mkdir()
    tasks = write_tasks(folder / "tasks.jsonl", -(-setting.episodes // SAMPLES_PER_TASK))
    output = output or str(folder / "out")
    flags = [
        "--tasks", f"file:{tasks}", "--samples", str(SAMPLES_PER_TASK), "--multi-turn", "--max-turns", "4",
        "--output", output, "--save-interval", str(setting.save_interval), "--device", "cpu",
        "--batch-size", str(setting.replicas * setting.slots), "--bench-workers", str(setting.actors),
        "--bench-concurrency", "1", "--bench-cpus", f"{1 / setting.actors:.4f}",
    ]  # fmt: skip
    environment = {**os.environ, env_vars.RAY_ADDRESS: "local", MEAN_S: str(setting.bench_s),
                   SPANS: str(folder / "spans")}  # fmt: skip
    own = [str(folder / "samples.jsonl"), *(["--profile", str(profile)] if profile else [])]
    began = time.monotonic()
    with model_server(setting) as url:
        command = [sys.executable, "-m", "benchmarks.driver.watched", *own, "--", *flags, "--vllm-url", url]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"the driver ended with {done.returncode}:\n{done.stdout[-4000:]}")
    lines = (folder / "samples.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines if line.endswith("}")]
    spans = [json.loads(path.read_text()) for path in sorted((folder / "spans").glob("*.json"))]
    return Traces(setting, began, time.monotonic() - began, output, samples, spans, done.stdout)


def write_tasks(path: Path, count: int) -> Path:
    """A file of `count` tasks."""
    with path.open("w") as file:
        for number in range(count):
            code = (
                'import torch\n\ninput_shapes = {"x": {"shape": [64, 64], "dtype": "float32"}}\n\n\n'
                f"def reference_impl(x):\n    return torch.nn.functional.leaky_relu(x * {number}.0 + 1.0)\n"
            )
            file.write(json.dumps({"code": code, "name": f"t{number:06d}"}) + "\n")
    return path


@contextmanager
def model_server(setting: Setting) -> Iterator[str]:
    """The waiting model's URL."""
    command = [
        sys.executable, "-m", "benchmarks.driver.model_server", "--replicas", str(setting.replicas),
        "--slots", str(setting.slots), "--mean-s", str(setting.model_s),
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()
