"""What the replicas of one model have lately been asked, as Ray's tree of beginnings, in an actor of its own.

Imports Ray's part for language models, not vLLM.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import ray
from ray.llm._internal.serve.routing_policies.prefix_aware import prefix_tree
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_LOGGER_NAME, SERVE_NAMESPACE

from deployments.app import NODES

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.serve._private.common import DeploymentID

NAME = "kb-prefix-tree"
HEAD = {"kb-pool": "head"}
START_S = 60.0
"""What a process on a busy machine may take until it answers."""
CHARS, CHARS_LEFT, EVERY_S = 4_000_000, 3_600_000, 10.0
"""Of each replica: beyond the first the oldest are forgotten down to the second. About a million tokens, which is what
the cache of a replica holds; without a bound the tree would grow for as long as it is asked."""
SERVE_S = 10.0
"""Between two looks whether there is Serve."""

logger = logging.getLogger(SERVE_LOGGER_NAME)


class Tree(prefix_tree.PrefixTree):
    """What each replica was asked, by its name. One that starts again after its process died knows nothing, and learns
    from what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.start_eviction_loop(CHARS, CHARS_LEFT, EVERY_S)

    def owners(self, text: str, replicas: list[str]) -> tuple[int, list[str]]:
        """How many characters of the beginning of `text` some of `replicas` were asked, and which."""
        beginning, found = self.prefix_match(text, replicas)
        return len(beginning), found or []

    def insert(self, text: str, tenant: str, time_s: float) -> None:
        """See PrefixTree, which heeds only replicas that it was told of."""
        self.add_tenants([tenant], time_s)
        super().insert(text, tenant, time_s)

    def keep(self, replicas: list[str]) -> None:
        """Forgets all other replicas."""
        self.remove_tenants([name for name in self.sizes() if name not in replicas])

    def sizes(self) -> dict[str, int]:
        """Replica -> characters that are remembered of it."""
        return dict(self.tenant_to_char_count)


class TreeActor(Tree):
    """In an actor of its own, which ends when Serve does."""

    def __init__(self) -> None:
        super().__init__()
        me = ray.get_runtime_context().current_actor
        threading.Thread(target=_end_with_serve, args=(me,), daemon=True).start()


def reach(deployment: DeploymentID) -> ActorHandle:
    """The tree of a deployment, made where there is none. Blocks until it answers; an error where it does not.

    It outlives the deployment, not Serve: the controller kills it at its own end, or within SERVE_S it ends by itself.
    """
    tree = (
        ray.remote(TreeActor)
        .options(
            name=NAME, namespace=f"{SERVE_NAMESPACE}::{deployment.app_name}::{deployment.name}", get_if_exists=True,
            lifetime="detached", max_restarts=-1,
            # Without this an actor asks for a CPU, which the head need not have, and ends up on some other node, which
            # it does not keep from being given back. Where no node is labelled it may be any.
            num_cpus=0, label_selector=HEAD, fallback_strategy=[{"label_selector": NODES}],
        )
        .remote()
    )  # fmt: skip
    ray.get(tree.sizes.remote(), timeout=START_S)
    return tree


def _end_with_serve(tree: ActorHandle) -> None:
    """A controller that starts again has forgotten whom it shall kill at its end, so it is told over and over; and its
    end may come before it is told. By the tree, since there may be no router any more that would do it."""
    while True:
        try:
            _register(tree)
        except Exception as error:
            logger.warning(f"no look whether there is Serve: {type(error).__name__}: {error}")
        time.sleep(SERVE_S)


def _register(tree: ActorHandle) -> None:
    try:
        controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    except ValueError:
        # There is none: Serve has ended. Should that be wrong for once, routers make another tree.
        ray.kill(tree, no_restart=True)
    else:
        controller._register_shutdown_cleanup_actor.remote(tree)
