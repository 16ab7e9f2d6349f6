"""GPUs that others hold on a node of the pool, seen on a real Ray whose GPUs are numbers only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fixtures_head import ROOT, clean_environment

LOOK = """
import asyncio, ray
from kb_ray.bench import watch
from kb_ray.bench.placement import place
from kb_ray.bench.worker import Worker

ray.init("local", num_cpus=4, num_gpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
watch.LOOK_EVERY_S = 1.0

class Other:
    def here(self):
        return True

async def lines(workers, seconds):
    told = []
    looking = asyncio.create_task(watch.Watch(lambda: workers, told.append).run())
    await asyncio.sleep(seconds)
    looking.cancel()
    return len(told)

async def main():
    placement = place("cuda", 2, ray.nodes(), ray.cluster_resources(), ray.available_resources())
    workers = [Worker(n, "neighbours", "cuda", 1, placement) for n in range(2)]
    for worker in workers:
        while await worker.gpu_use() is None:
            pass
    alone = await lines(workers, 4)
    other = ray.remote(Other).options(num_gpus=1, num_cpus=0).remote()
    await other.here.remote()
    print(alone, await lines(workers, 6) > 0, sum(watch.held_gpus().values()))

asyncio.run(main())
"""


def test_a_neighbour_on_the_node_is_seen_and_the_pools_own_workers_are_none(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        capture_output=True, text=True, cwd=ROOT, env=clean_environment(tmp_path), timeout=120,
    )  # fmt: skip
    assert done.stdout.split() == ["0", "True", "3.0"], done.stderr
