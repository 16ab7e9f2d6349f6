"""Which replica a request is sent to: one that has its beginning, and one in any case, whatever the tree does.

Nothing here depends on how fast the machine is: what is to be slow waits until a test lets it go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from ray.serve._private.common import DeploymentID
from ray.serve._private.request_router import request_router
from ray.serve._private.request_router.common import PendingRequest

from deployments import prefix_router, prefix_tree
from deployments.prefix_router import UNEVEN, text_of
from tests.unit.deployments.prefix_routers import (
    DEPLOYMENT,
    FULL,
    HUNG_S,
    NEVER_S,
    OPENING,
    STALE_S,
    Actor,
    Clock,
    Replica,
    first,
    reached,
    request,
    router_of,
    sent,
    started,
)


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Actor:
    made = Actor()
    monkeypatch.setattr(prefix_tree, "reach", made.reach)
    return made


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


@pytest.mark.parametrize("cache", [True, False])
async def test_a_replica_of_which_nothing_was_heard_for_long_is_asked_how_crowded_it_is(
    actor: Actor, cache: bool
) -> None:
    """As a model is whose answers take minutes; Ray uses no cache where it comes in by a Ray client."""
    a, b, clock = Replica("a"), Replica("b"), Clock()
    long = STALE_S if cache else 0.0
    router = await router_of(a, b, clock=clock, cache=cache)
    actor.tree.insert(OPENING, a.replica_id.to_full_id_str(), 1.0)
    for length, preferred in ((UNEVEN + 1, {"a", "b"}), (UNEVEN, {"a"}), (90, {"a", "b"})):
        # Many of its answers may have ended since it was heard of: Ray does not count them.
        a.has = length
        clock.now += long
        assert await first(router, request(OPENING)) == preferred
    # Nor is the idlest overlooked where only the other was heard of.
    clock.now += long
    router.on_new_queue_len_info(a.replica_id, a.has)
    assert await first(router, request(OPENING)) == {"a", "b"}
    clock.now += long
    assert await sent(router, request(OPENING)) == "b"


async def test_a_replica_that_does_not_say_how_crowded_it_is_is_not_preferred_and_seldom_waited_for(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, clock = Replica("a"), Replica("b"), Clock()
    router = await router_of(a, b, clock=clock)
    for replica in (a, b):
        actor.tree.insert(OPENING, replica.replica_id.to_full_id_str(), 1.0)
    a.silent, b.has = True, FULL - 1
    for pause, asked in ((0.0, 3), (NEVER_S, 1)):
        clock.now += STALE_S
        monkeypatch.setattr(prefix_router, "SILENT_S", pause)
        a.asked = 0
        for _ in range(3):
            assert await first(router, request(OPENING)) == {"b"}
        assert a.asked == asked


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


async def test_an_adapter_is_asked_for_where_it_is_loaded(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    # After which Ray sends a request to a replica that has not loaded its adapter.
    monkeypatch.setattr(request_router, "RAY_SERVE_MULTIPLEXED_MODEL_ID_MATCHING_TIMEOUT_S", NEVER_S)
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
    monkeypatch.setattr(prefix_router, "PATIENCE_S", 0.1)
    monkeypatch.setattr(prefix_router, "PAUSE_S", NEVER_S)
    router = await router_of(Replica("a"), Replica("b"))
    got = await sent(router, request(OPENING))
    actor.fault = FAULTS[fault]
    asked = actor.asked.count("owners")
    for _ in range(50):
        await sent(router, request(OPENING))
    assert actor.asked.count("owners") == asked + 1, "who does not ask does not wait"
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
    trying, let_go = threading.Event(), threading.Event()

    def reach(deployment: DeploymentID) -> Any:
        tries.append(deployment)
        trying.set()
        if not let_go.wait(HUNG_S):
            let_go.set()
        raise ConnectionError("no Ray")

    monkeypatch.setattr(prefix_tree, "reach", reach)
    monkeypatch.setattr(prefix_router, "PAUSE_S", 0.0)
    router = started()
    assert trying.wait(HUNG_S)
    router.update_replicas([Replica("a")])
    for _ in range(20):
        await sent(router, request(OPENING))
    assert not let_go.is_set(), "nobody waited for it"
    assert tries == [DEPLOYMENT], "one at a time"
    let_go.set()
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
    end = time.monotonic() + HUNG_S
    while (size := tree.sizes()["a"]) > 1000:
        assert time.monotonic() < end, size
        time.sleep(0.02)
    assert tree.owners("099" * 10, ["a"]) == (30, ["a"]), "the latest stays"
    assert tree.owners("000" * 10, ["a"])[0] < 30
