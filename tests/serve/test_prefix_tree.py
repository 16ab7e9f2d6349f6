"""Requests for the served model pass the tree of beginnings, and are answered whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from ray.exceptions import RayError

from deployments.prefix_tree import NAME
from tests.fixtures_autoscaling import Autoscaled

MODEL = "smollm2-135m-instruct"
NAMESPACE = f"serve::smollm2::LLMServer:{MODEL}"
OPENING = "Count the words. " * 30
SOON_S = 120.0
"""Of an answer on a busy machine; without one a request would wait for ever."""

_WHERE = """
import json
import ray
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_tree import PrefixTreeActor
from ray.serve._private.common import DeploymentID
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from deployments import prefix_tree

class Controller:
    def _register_shutdown_cleanup_actor(self, actor):
        pass

class Busy:
    def ready(self):
        pass

def pool(actor, method):
    ray.get(getattr(actor, method).remote(), timeout=60)
    node = ray._private.state.actors(actor._actor_id.hex())["Address"]["NodeID"]
    return next(one["Labels"].get("kb-pool") for one in ray.nodes() if one["NodeID"] == node)

ray.init(log_to_driver=False)
controller = ray.remote(num_cpus=0)(Controller).options(name=SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE).remote()
busy = [ray.remote(num_cpus=1)(Busy).options(label_selector={"kb-pool": name}).remote() for name in ("head", "bench")]
ray.get([one.ready.remote() for one in busy], timeout=120)
tree = prefix_tree.reach(DeploymentID(name="m", app_name="a"))
again = prefix_tree.reach(DeploymentID(name="m", app_name="a"))
found = {
    "same": tree._actor_id == again._actor_id, "ours": pool(tree, "sizes"),
    "rays": pool(PrefixTreeActor.remote(), "get_smallest_tenants"),
}
ray.kill(tree)
print("\\n" + json.dumps(found))
"""

_ENDS = """
import json
import time
import uuid
import ray
from ray.serve._private.common import DeploymentID
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from deployments import prefix_tree

class Controller:
    def __init__(self):
        self.life, self.ending = uuid.uuid4().hex, set()
    def _register_shutdown_cleanup_actor(self, actor):
        self.ending.add(actor._actor_id.hex())
    def seen(self):
        return self.life, self.ending

def until(holds):
    end = time.monotonic() + 120
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.1)
    return held

def life_that_knows(tree, other=None):
    life, ending = ray.get(controller.seen.remote(), timeout=60)
    return life if life != other and tree._actor_id.hex() in ending else None

ray.init(log_to_driver=False)
controller = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Controller).options(
    name=SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE
).remote()
tree = prefix_tree.reach(DeploymentID(name="m", app_name="ends"))
first = until(lambda: life_that_knows(tree))
ray.kill(controller, no_restart=False)
found = {"registered": bool(first), "again": bool(until(lambda: life_that_knows(tree, first)))}
found["stays"] = ray.get(tree.sizes.remote(), timeout=60) == {}
ray.kill(controller)
found["ended"] = until(lambda: ray._private.state.actors(tree._actor_id.hex())["State"] == "DEAD")
print("\\n" + json.dumps(found))
"""


def test_the_tree_is_on_a_head_without_a_free_cpu_where_rays_own_would_be_on_a_node_of_bench(
    autoscaled: Autoscaled,
) -> None:
    assert found_by(_WHERE, autoscaled) == {"same": True, "ours": "head", "rays": "bench"}


def test_the_tree_ends_with_serve_whose_controller_has_forgotten_it_or_is_gone(autoscaled: Autoscaled) -> None:
    assert found_by(_ENDS, autoscaled) == {"registered": True, "again": True, "stays": True, "ended": True}


def found_by(script: str, autoscaled: Autoscaled) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2],
        env=autoscaled.environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def tree() -> Any:
    import ray

    return ray.get_actor(NAME, namespace=NAMESPACE)


def remembered() -> int:
    """Characters."""
    import ray

    return sum(ray.get(tree().sizes.remote(), timeout=SOON_S).values())


def process() -> int:
    import ray

    return int(ray._private.state.actors(tree()._actor_id.hex())["Pid"])


def until(holds: Callable[[], bool], url: str) -> None:
    """Asks the model meanwhile: from that the tree learns."""
    end = time.monotonic() + 180
    found = False
    while not found:
        assert time.monotonic() < end
        assert ask(url).status_code == 200
        # There may be no such actor for a while, or none that answers.
        with suppress(ValueError, RayError):
            found = holds()
        time.sleep(0 if found else 1)


def ask(url: str, path: str = "/chat/completions", **body: Any) -> httpx.Response:
    told = body or {"messages": [{"role": "user", "content": OPENING}], "max_tokens": 2}
    return httpx.post(url + path, json={"model": MODEL, **told}, timeout=SOON_S)


def test_what_was_asked_is_remembered(smollm2_url: str) -> None:
    assert ask(smollm2_url).status_code == 200
    until(lambda: remembered() >= len(OPENING), smollm2_url)


@pytest.mark.parametrize(
    ("path", "body", "statuses"),
    [
        ("/completions", {"prompt": list(range(1, 40)), "max_tokens": 2}, {200}),
        ("/embeddings", {"input": "This model has none."}, {400, 404, 500, 501}),
    ],
)
def test_a_request_without_text_is_answered(
    smollm2_url: str, path: str, body: dict[str, Any], statuses: set[int]
) -> None:
    """With Ray's own router both wait for ever."""
    assert ask(smollm2_url, path, **body).status_code in statuses


def test_answers_come_while_the_tree_is_killed_stuck_or_gone_and_it_learns_again(smollm2_url: str) -> None:
    import ray

    until(lambda: remembered() > 0, smollm2_url)
    os.kill(process(), signal.SIGKILL)
    assert ask(smollm2_url).status_code == 200
    until(lambda: remembered() > 0, smollm2_url)
    stuck = process()
    os.kill(stuck, signal.SIGSTOP)
    try:
        assert [ask(smollm2_url).status_code for _ in range(3)] == [200] * 3
    finally:
        os.kill(stuck, signal.SIGCONT)
    gone = tree()
    ray.kill(gone, no_restart=True)
    assert ask(smollm2_url).status_code == 200
    until(lambda: tree()._actor_id != gone._actor_id and remembered() > 0, smollm2_url)


def test_of_two_replicas_the_one_that_has_the_beginning_gets_the_request(smollm2_url: str) -> None:
    from ray import serve
    from ray.serve.config import RequestRouterConfig

    class Named:
        async def __call__(self, request: Any) -> str:
            return str(serve.get_replica_context().replica_id.unique_id)

    router = RequestRouterConfig(request_router_class="deployments.prefix_router.PrefixRouter")
    two = serve.deployment(Named, num_replicas=2, ray_actor_options={"num_cpus": 0}, request_router_config=router)
    handle = serve.run(two.bind(), name="two", route_prefix=None)
    try:

        def got(prompt: str) -> str:
            return str(handle.remote(SimpleNamespace(prompt=prompt)).result(timeout_s=SOON_S))

        # The tree may still be starting.
        end = time.monotonic() + SOON_S
        while len({got(OPENING) for _ in range(20)}) > 1:
            assert time.monotonic() < end
        assert {got(f"{number} {OPENING}") for number in range(30)} > {got(OPENING)}, "others go to both"
        for number in range(10):
            assert {got(f"{number} {OPENING} and so on") for _ in range(3)} == {got(f"{number} {OPENING}")}
    finally:
        serve.delete("two")
