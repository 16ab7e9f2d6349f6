"""Evaluation over HTTP under load: is any answer lost or mixed up, is 429 honoured, does memory stay where it was?

    python -m benchmarks.http_load --output http_load.json [--clients 64] [--requests 2000]

Starts a Ray of its own with Serve, the service and one CPU worker. Each client sends its requests one after the other;
of ten candidates eight do not parse (each at a line of its own), one is wrong and one is right (each kernel with a
name of its own), so that every answer says whose it is. The queue is made short, so that clients are turned away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import socket
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks import candidates
from kb_ray import cluster, env_vars
from kb_ray.bench.client import AsyncBenchClient

QUEUE = 48
"""Places in the queue: fewer than there are clients."""
SAMPLE_S = 2.0
SHAPES = {name: {"shape": list(candidates.TINY), "dtype": "float32"} for name in "xy"}
REFERENCE = "import torch\n\n\ndef reference_impl(x, y):\n    return torch.relu(x + y)\n"
ZYGOTE = "bench.child.zygote"
ROLES = ("ServeReplica:bench", "ProxyActor", "BenchActor", "bench.child.judge", ZYGOTE)
FLAT = 0.05
"""Share by which memory may be higher in the second half of a run than in the first."""
BAD = ("lost", "faults", "came_early_after_429", "not_flat")
"""What of a report fails it where there is any."""


class Watched(httpx.AsyncHTTPTransport):
    """Notes of each answer its code, and whether the next request came before it was asked to."""

    def __init__(self, codes: Counter[int], early: list[float]) -> None:
        super().__init__(limits=httpx.Limits(max_connections=2))
        self._codes, self._early, self._not_before = codes, early, 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if time.monotonic() < self._not_before:
            self._early.append(self._not_before - time.monotonic())
        response = await super().handle_async_request(request)
        self._codes[response.status_code] += 1
        if response.status_code == 429:
            self._not_before = time.monotonic() + float(response.headers["retry-after"])
        return response


def candidate(number: int) -> tuple[str, dict[str, Any], str]:
    """(what it is, the request, what only its own answer can say)."""
    kind = {0: "right", 1: "wrong"}.get(number % 10, "syntax_error")
    code = candidates.right(number)
    own = code.partition("def ")[2].partition("(")[0]
    if kind == "wrong":
        code = code.replace("x + y, 0.0", "x - y, 0.0")
    if kind == "syntax_error":
        code, own = "\n" * number + "def", str(number + 1)
    request = {"kernel_code": code, "reference_torch_code": REFERENCE, "input_shapes": SHAPES, "n_correctness": 2}
    return kind, request | {"request_id": f"r{number}", "generalise": "off"}, own


def fault(number: int, answer: dict[str, Any]) -> str | None:
    """What is wrong with the answer to a request; None where it is its own and right."""
    kind, request, own = candidate(number)
    status = {"right": "ok", "wrong": "mismatch"}.get(kind, kind)
    said = answer["error_detail"]["line"] if kind == "syntax_error" else answer["evidence"]["kernels"]
    if answer.get("request_id") != request["request_id"]:
        return "another's id"
    if answer["status"] != status:
        return f"{answer['status']} instead of {status}"
    return None if str(said) == own or said == [own] else "another's content"


async def load(url: str, clients: int, requests: int, memory: dict[str, list[float]]) -> dict[str, Any]:
    """All requests through all clients; what came of them."""
    codes, early, seconds = Counter[int](), list[float](), defaultdict(list)
    faults, answered = Counter[str](), set()

    async def one(name: int) -> None:
        async with AsyncBenchClient(url, client=f"client-{name}", transport=Watched(codes, early)) as client:
            for number in range(name, requests, clients):
                kind, request, _ = candidate(number)
                started = time.monotonic()
                answer = await client.evaluate(**request)
                seconds[kind].append(time.monotonic() - started)
                answered.add(number)
                if (wrong := fault(number, answer)) is not None:
                    faults[wrong] += 1

    async def watch() -> None:
        while True:
            for role, mib in resident(os.getpid()).items():
                memory[role].append(mib)
            await asyncio.sleep(SAMPLE_S)

    watching, started = asyncio.create_task(watch()), time.monotonic()
    await asyncio.gather(*(one(name) for name in range(clients)))
    took = time.monotonic() - started
    watching.cancel()
    return {
        "seconds": took, "requests_per_second": requests / took, "answered": len(answered),
        "lost": requests - len(answered), "faults": dict(faults),
        "codes": {str(code): count for code, count in sorted(codes.items())},
        "came_early_after_429": len(early), "latency_s": {kind: spread(all_) for kind, all_ in seconds.items()},
    }  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"n": len(ordered), "median": statistics.median(ordered), "p95": ordered[int(0.95 * (len(ordered) - 1))],
            "max": ordered[-1]}  # fmt: skip


def resident(root: int) -> dict[str, float]:
    """MiB resident of the processes below `root` that serve, by role; without candidates, which zygotes fork."""
    found: dict[str, float] = dict.fromkeys(ROLES, 0.0)
    for pid in descendants(root):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text()
            if ZYGOTE in words and ZYGOTE in Path(f"/proc/{_parent(pid)}/cmdline").read_text():
                continue
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
        for role in ROLES:
            if role in words:
                found[role] += pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return found


def descendants(root: int) -> Iterator[int]:
    parents: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = _parent(entry.name)
            except OSError:
                continue
            parents[parent].append(int(entry.name))
    pending = [root]
    while pending:
        pending += (children := parents[pending.pop()])
        yield from children


def _parent(pid: int | str) -> int:
    """OSError where the process is gone."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def growth(samples: list[float]) -> dict[str, float]:
    """MiB after a quarter of the time, at the end, and at most in between: medians over a tenth."""
    tenth = max(1, len(samples) // 10)
    quarter = len(samples) // 4
    return {
        "after_a_quarter": statistics.median(samples[quarter : quarter + tenth]),
        "at_the_end": statistics.median(samples[-tenth:]),
        "most": max(samples[quarter:]),
    }


def not_flat(memory: Mapping[str, Sequence[float]]) -> list[str]:
    """Roles whose memory grew: the second half's peak above the first half's by more than `FLAT`; and those of which
    too little was seen to say. Counted from when a role was first there.
    """
    found = []
    for role, samples in memory.items():
        there = [mib for mib in samples if mib > 0]
        early, late = there[: len(there) // 2], there[len(there) // 2 :]
        if not early or max(late) > (1 + FLAT) * max(early):
            found.append(role)
    return found


def main() -> int:
    """Starts, loads, prints the report as JSON. Exit code 1 where an answer was lost, wrong or another's, a client came
    back too early, or memory grew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_load", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    os.environ.setdefault(env_vars.RAY_AUTH_MODE, "token")
    cluster.prepare_environment()
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    memory: dict[str, list[float]] = defaultdict(list)
    try:
        found = asyncio.run(load(served(), options.clients, options.requests, memory))
    finally:
        ray.shutdown()
    report = {"clients": options.clients, "requests": options.requests, "cores": os.cpu_count(), **found,
              "memory_mib": {role: growth(samples) for role, samples in memory.items()},
              "not_flat": not_flat(memory)}  # fmt: skip
    text = json.dumps(report, indent=1)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return int(any(report[bad] for bad in BAD))


def served() -> str:
    """The service on a free port of loopback; its URL."""
    from ray import serve

    from deployments import bench_app

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    args = {"workers": 1, "concurrency": 2, "device": "cpu", "queue_limit": QUEUE, "limits": {"batch": 1}}
    serve.run(bench_app.build(args), name="bench", route_prefix="/")
    return f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    raise SystemExit(main())
