"""What stands beside the driver: parts that a store takes, and answers that one HTTP proxy of Ray Serve passes on.

Both on this machine, without a driver. Starts and ends a Ray of its own for the second.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from benchmarks.driver.model_server import MODEL
from benchmarks.driver.runs import ROOT
from kb_ray import cluster, env_vars
from kb_ray.records import Episode
from kb_ray.traces.layout import part_key
from kb_ray.traces.schema import encode, table_of
from kb_ray.traces.store import open_store

SECONDS = 15.0
IN_FLIGHT = 256
ANSWER_S = 1.0
_WRITERS = 8


def puts(uri: str, episode: Episode, per_part: int) -> dict[str, Any]:
    """Parts a second that the store takes from one process, one after the other and from eight threads."""
    store, table = open_store(uri), table_of([episode] * per_part)
    data = encode(table)

    def put(number: int) -> float:
        began = time.monotonic()
        store.put_if_absent(part_key(data + number.to_bytes(8, "big")), data)
        return time.monotonic() - began

    found: dict[str, Any] = {"per_part": per_part, "kib": len(data) / 1024}
    next_number = 0
    for writers in (1, _WRITERS):
        began, took = time.monotonic(), []
        with ThreadPoolExecutor(writers) as threads:
            while time.monotonic() - began < SECONDS:
                took += threads.map(put, range(next_number, next_number + 8 * writers))
                next_number += 8 * writers
        found[f"puts_per_s_{writers}"] = len(took) / (time.monotonic() - began)
        found[f"slowest_s_{writers}"] = max(took)
    return found


def ingress() -> dict[str, Any]:
    """Answers a second through one proxy, of a model that only waits; in a process of its own, which owns the Ray."""
    environment = {**os.environ, env_vars.RAY_ADDRESS: "local"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.driver.beyond"], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _serve() -> str:
    """A waiting model behind Serve; its URL."""
    # Before anything else imports Ray.
    cluster.connect("ingress")
    from ray import serve
    from starlette.requests import Request

    class Waiting:
        async def __call__(self, request: Request) -> dict[str, Any]:
            await request.json()
            await asyncio.sleep(ANSWER_S)
            return {"model": MODEL, "choices": [{"message": {"role": "assistant", "content": "x" * 3000}}]}

    port = int(os.environ.get("KB_INGRESS_PORT", "8123"))
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    deployment = serve.deployment(Waiting, num_replicas=2, max_ongoing_requests=2 * IN_FLIGHT)
    serve.run(deployment.options(ray_actor_options={"num_cpus": 0}).bind(), route_prefix="/v1")
    return f"http://127.0.0.1:{port}/v1/chat/completions"


async def _asked(url: str) -> float:
    """Answers a second, `IN_FLIGHT` under way, by as many connections as a driver opens."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "y" * 4000}]}
    clients = [httpx.AsyncClient(timeout=60.0) for _ in range(IN_FLIGHT // 4)]
    end, counted = time.monotonic() + SECONDS, 0

    async def ask(number: int) -> None:
        nonlocal counted
        while time.monotonic() < end:
            (await clients[number % len(clients)].post(url, json=body)).raise_for_status()
            counted += 1

    began = time.monotonic()
    await asyncio.gather(*map(ask, range(IN_FLIGHT)))
    rate = counted / (time.monotonic() - began)
    await asyncio.gather(*(client.aclose() for client in clients))
    return rate


def main() -> None:
    """Prints the figures as one line of JSON."""
    url = _serve()
    before = time.process_time()
    rate = asyncio.run(_asked(url))
    client_cores = (time.process_time() - before) / SECONDS
    found = {"answers_per_s": rate, "in_flight": IN_FLIGHT, "answer_s": ANSWER_S, "client_cores": client_cores}
    from ray import serve

    serve.shutdown()
    cluster.disconnect()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
