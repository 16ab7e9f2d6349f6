"""Which replica a request is sent to: one that has its beginning, and one in any case, whatever the tree does.

The tree is the actor's own code in this process; no Ray runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID, RequestMetadata
from ray.serve._private.request_router.common import PendingRequest

from deployments import prefix_router, prefix_tree
from deployments.prefix_router import UNEVEN, PrefixRouter, text_of

DEPLOYMENT = DeploymentID(name="LLMServer:m", app_name="m")
OPENING = "You write Triton kernels. " * 20
FULL = 100


class Replica:
    """As a router sees it."""

    def __init__(self, name: str, *adapters: str) -> None:
        self.replica_id = ReplicaID(unique_id=name, deployment_id=DEPLOYMENT)
        self.name, self.multiplexed_model_ids = name, set(adapters)
        self.node_id = self.availability_zone = "here"
        self.max_ongoing_requests = FULL
        self.has = 0

    async def get_queue_len(self, *, deadline_s: float) -> int:
        return self.has


class Actor:
    """Handle of a tree that answers at once, or as `fault` says."""

    def __init__(self) -> None:
        self.tree = prefix_tree.Tree()
        self.asked: list[str] = []
        self.fault: Callable[[], Any] | None = None
        self.reached = 0

    def reach(self, deployment: DeploymentID) -> Actor:
        self.reached += 1
        return self

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *args: self._call(method, args))

    def _call(self, method: str, args: tuple[Any, ...]) -> asyncio.Future[Any]:
        self.asked.append(method)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.fault is None:
            answer.set_result(getattr(self.tree, method)(*args))
        elif (fault := self.fault()) is not None:
            answer.set_exception(fault)
        return answer


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Actor:
    made = Actor()
    monkeypatch.setattr(prefix_tree, "reach", made.reach)
    return made


def started(**settings: Any) -> PrefixRouter:
    router = PrefixRouter(
        deployment_id=DEPLOYMENT, handle_source=DeploymentHandleSource.REPLICA, use_replica_queue_len_cache=True
    )
    router.initialize_state(**settings)
    return router


async def router_of(*replicas: Replica, **settings: Any) -> PrefixRouter:
    router = started(**settings)
    reached(router)
    router.update_replicas(list(replicas))
    await asyncio.sleep(0.01)
    return router


def reached(router: PrefixRouter) -> None:
    assert router._reaching is not None
    router._reaching.join(10)


def request(prompt: Any = None, adapter: str = "", **fields: Any) -> PendingRequest:
    number = f"r{time.monotonic_ns()}"
    metadata = RequestMetadata(request_id=number, internal_request_id=number, multiplexed_model_id=adapter)
    return PendingRequest(args=[SimpleNamespace(prompt=prompt, **fields), None], kwargs={}, metadata=metadata)


async def first(router: PrefixRouter, pending: PendingRequest) -> set[str]:
    """Those that are preferred."""
    ranks = await router.choose_replicas(list(router.curr_replicas.values()), pending)
    return {replica.name for replica in ranks[0]}


async def sent(router: PrefixRouter, pending: PendingRequest) -> str:
    """Name of the replica that got it, as Serve has it sent."""
    replica: Any = await asyncio.wait_for(router._choose_replica_for_request(pending), 5)
    router.on_send_request(replica.replica_id)
    router.on_request_routed(pending, replica.replica_id, None)
    return str(replica.name)


async def test_each_turn_goes_where_the_turn_before_went(actor: Actor) -> None:
    router = await router_of(*(Replica(name) for name in "abcd"))
    system = {"role": "system", "content": OPENING}
    for number in range(8):
        asked = {"role": "user", "content": [{"type": "text", "text": f"{number} is the number of this task. " * 9}]}
        got = await sent(router, request(messages=[system, asked]))
        answered = [system, asked, {"role": "assistant", "content": "It is done." * 20}]
        assert await first(router, request(messages=answered)) == {got}


async def test_a_prompt_of_tokens_is_known_again_like_one_of_text(actor: Actor) -> None:
    router = await router_of(*(Replica(name) for name in "abcd"))
    # Whatever a client may send: no vocabulary has the last ones.
    tokens = [55296, 57343, 151643, -1, 2**40] * 50
    got = await sent(router, request(tokens))
    assert await first(router, request([*tokens, 7, 8, 9])) == {got}
    assert text_of(request([tokens]).args) == text_of(request(tokens).args)
    assert text_of(request(tokens).args).encode(), "fit to be sent"


@pytest.mark.parametrize("prompt", [None, "", [], [""], {"other": 1}, 0.5])
async def test_what_has_no_beginning_is_sent_all_the_same(actor: Actor, prompt: Any) -> None:
    router = await router_of(Replica("a"), Replica("b"))
    await sent(router, request(prompt))
    await sent(router, PendingRequest([], {}, request().metadata))
    assert actor.asked == ["keep"]


async def test_what_is_new_may_go_anywhere(actor: Actor) -> None:
    router = await router_of(*(Replica(name) for name in "abcd"))
    await sent(router, request(OPENING))
    assert len(await first(router, request("Y" + OPENING))) == 2
    assert len(await first(router, request("You" + "x" * 100))) == 2, "too little to gain by"


async def test_a_replica_that_is_crowded_is_not_preferred_and_one_that_is_full_holds_nobody_up(actor: Actor) -> None:
    a, b = Replica("a"), Replica("b")
    router = await router_of(a, b)
    actor.tree.insert(OPENING, a.replica_id.to_full_id_str(), 1.0)
    for length, preferred in ((0, {"a"}), (UNEVEN, {"a"}), (UNEVEN + 1, {"a", "b"})):
        router.on_new_queue_len_info(a.replica_id, length)
        assert await first(router, request(OPENING)) == preferred
    # As crowded as each other, but that only one has its beginning and no room.
    for replica, length in ((a, FULL), (b, FULL - 1)):
        replica.has = length
        router.on_new_queue_len_info(replica.replica_id, length)
    assert await first(router, request(OPENING)) == {"a"}
    assert await sent(router, request(OPENING)) == "b"


async def test_the_limit_can_be_set_and_what_is_no_setting_does_no_harm(
    actor: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = Replica("a"), Replica("b")
    router = await router_of(a, b, imbalanced_threshold=3, do_eviction=True)
    assert "no do_eviction; known: imbalanced_threshold" in caplog.text
    actor.tree.insert(OPENING, a.replica_id.to_full_id_str(), 1.0)
    for length, preferred in ((3, {"a"}), (4, {"a", "b"})):
        router.on_new_queue_len_info(a.replica_id, length)
        assert await first(router, request(OPENING)) == preferred


async def test_an_adapter_is_asked_for_where_it_is_loaded(actor: Actor) -> None:
    a, b, c = Replica("a"), Replica("b", "m:step1"), Replica("c", "m:step1", "m:step2")
    router = await router_of(a, b, c)
    for replica in (a, c):
        actor.tree.insert(OPENING, replica.replica_id.to_full_id_str(), 1.0)
    assert await first(router, request(OPENING)) == {"a", "c"}
    assert await first(router, request(OPENING, "m:step1")) == {"c"}
    assert await first(router, request("Y" + OPENING, "m:step1")) == {"b", "c"}


FAULTS: dict[str, Callable[[], Any]] = {
    "starting again": lambda: ActorUnavailableError("not now", b"0" * 16),
    "gone": ActorDiedError,
    "wrong": lambda: RayTaskError("owners", "traceback", ZeroDivisionError()),
    "unforeseen": lambda: ValueError("?"),
    "stuck": lambda: None,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_without_an_answer_of_the_tree_ray_chooses_and_the_tree_has_a_rest(
    actor: Actor, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_router, "PATIENCE_S", 0.3)
    router = await router_of(Replica("a"), Replica("b"))
    got = await sent(router, request(OPENING))
    actor.fault = FAULTS[fault]
    begun = time.monotonic()
    await sent(router, request(OPENING))
    asked = len(actor.asked)
    for _ in range(50):
        await sent(router, request(OPENING))
    assert time.monotonic() - begun < 1.5, "they waited once"
    assert len(actor.asked) == asked, "and asked once"
    actor.fault = None
    monkeypatch.setattr(prefix_router, "PAUSE_S", 0.0)
    assert actor.reached == 1
    router._failed(ActorDiedError())
    # The request after that has another one reached for.
    await first(router, request(OPENING))
    reached(router)
    assert actor.reached == 2
    assert await first(router, request(OPENING)) == {got}


async def test_a_tree_that_cannot_be_had_is_reached_for_again_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[DeploymentID] = []

    def reach(deployment: DeploymentID) -> Any:
        tries.append(deployment)
        time.sleep(0.2)
        raise ConnectionError("no Ray")

    monkeypatch.setattr(prefix_tree, "reach", reach)
    monkeypatch.setattr(prefix_router, "PAUSE_S", 0.0)
    router = started()
    begun = time.monotonic()
    router.update_replicas([Replica("a")])
    for _ in range(20):
        await sent(router, request(OPENING))
    assert time.monotonic() - begun < 0.2
    assert tries == [DEPLOYMENT], "one at a time"
    reached(router)
    await sent(router, request(OPENING))
    reached(router)
    assert len(tries) > 1


async def test_the_tree_keeps_replicas_that_there_are_and_learns_of_others(actor: Actor) -> None:
    a, b = Replica("a"), Replica("b")
    router = await router_of(a, b)
    for replica in (a, b):
        actor.tree.insert(OPENING, replica.replica_id.to_full_id_str(), 1.0)
    router.update_replicas([b])
    assert list(actor.tree.sizes()) == [b.replica_id.to_full_id_str()]
    # As after the end of its process: nobody tells it of the replicas again.
    actor.tree = prefix_tree.Tree()
    await sent(router, request(OPENING))
    assert actor.tree.sizes() == {b.replica_id.to_full_id_str(): len(OPENING)}


def test_the_tree_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHARS": 1000, "CHARS_LEFT": 500, "EVERY_S": 0.05}.items():
        monkeypatch.setattr(prefix_tree, name, value)
    tree = prefix_tree.Tree()
    for number in range(100):
        tree.insert(f"{number:03d}" * 10, "a", float(number))
    end = time.monotonic() + 10
    while (size := tree.sizes()["a"]) > 1000:
        assert time.monotonic() < end, size
        time.sleep(0.02)
    assert tree.owners("099" * 10, ["a"]) == (30, ["a"]), "the latest stays"
    assert tree.owners("000" * 10, ["a"])[0] < 30
