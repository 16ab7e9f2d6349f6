"""Sends a request to a replica of the model that has the request's beginning in its cache, where one has.

By a deployment's `request_router_config`: `request_router_class: deployments.prefix_router.PrefixRouter`. The same idea
as `ray.serve.llm.request_router.PrefixCacheAffinityRouter`, whose event loop waits for its tree without a limit, and
whose requests stay without a replica, for good, where the tree fails, where a prompt is given as tokens, or while the
only replica that has its beginning is full. Here the tree is advice: without it Ray's own choice between two stands.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ray.exceptions import ActorDiedError
from ray.serve._private.constants import SERVE_LOGGER_NAME
from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter
from ray.serve._private.request_router.request_router import LocalityMixin, MultiplexMixin, RequestRouter

from deployments import prefix_tree

PATIENCE_S = 1.0
"""For an answer of the tree, which takes it a millisecond or a few."""
PAUSE_S = 10.0
"""For which a tree that failed is left alone, so that not every request waits for it."""
SHARE = 0.1
"""Of a request that a replica must have been asked before."""
UNEVEN = 16
"""Requests that a replica may have more than the idlest and still be preferred: it is not faster when it is crowded.
All episodes begin with the same instructions, so that without a limit the first replica would get them all."""
SILENT_S = 1.0
"""For which a replica is not waited for after it did not say how many requests it has. Each wait is Ray's, of
`RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S`; few requests are routed at a time, so that many waits would add up."""

logger = logging.getLogger(SERVE_LOGGER_NAME)


class PrefixRouter(LocalityMixin, MultiplexMixin, RequestRouter):
    """In one process that sends requests to one deployment. An exception while a request is given a replica would leave
    it without one for good: Serve logs it, and does not try again."""

    def initialize_state(self, imbalanced_threshold: float = UNEVEN, **unknown: Any) -> None:
        """See RequestRouter."""
        if unknown:
            logger.error(f"PrefixRouter has no {', '.join(sorted(unknown))}; known: imbalanced_threshold")
        self._uneven = imbalanced_threshold
        self._silent: dict[Any, float] = {}
        self._tree: Any = None
        self._resumes = 0.0
        self._reaching: threading.Thread | None = None
        self._reach()

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        """See RequestRouter: those with its beginning first, then two of any."""
        two = await PowerOfTwoChoicesRequestRouter.choose_replicas(self, candidate_replicas, pending_request)
        found = await self._with_its_beginning(pending_request) if two and pending_request is not None else []
        return [found, *two] if found else two

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        """See RequestRouter."""
        if text := text_of(pending_request.args):
            self._tell("insert", text, replica_id.to_full_id_str(), time.time())

    def update_replicas(self, replicas: list[Any]) -> None:
        """See RequestRouter."""
        super().update_replicas(replicas)
        self._tell("keep", [replica.replica_id.to_full_id_str() for replica in replicas])

    async def _with_its_beginning(self, pending: Any) -> list[Any]:
        adapter = pending.metadata.multiplexed_model_id
        loaded = self._multiplexed_model_id_to_replica_ids.get(adapter, ()) if adapter else self._replicas
        able = {known.to_full_id_str(): self._replicas[known] for known in loaded if known in self._replicas}
        text = text_of(pending.args)
        if not text or not able:
            return []
        length, owners = await self._ask(text, list(able))
        if length < SHARE * len(text):
            return []
        has = await self._lengths(list(able.values()))
        return [able[name] for name in owners if name in has and has[name] - min(has.values()) <= self._uneven]

    async def _lengths(self, replicas: list[Any]) -> dict[str, int]:
        """Requests that each replica has, without those that do not say so.

        Ray's cache forgets a length after 10 s without an event, which is the rule where answers take minutes. The last
        length is no substitute: Ray counts no end of a request while it has none. So those are asked, as Ray does.
        """
        now = time.monotonic()
        self._silent = {one: until for one, until in self._silent.items() if now < until}
        has, unknown = {}, []
        for one in replicas:
            # Ray adds nothing to the cache where it does not use it, but for what it asked itself.
            length = self._replica_queue_len_cache.get(one.replica_id) if self._use_replica_queue_len_cache else None
            if length is not None:
                has[one.replica_id.to_full_id_str()] = length
            elif one.replica_id not in self._silent:
                unknown.append(one)
        for one, length in await self._probe_queue_lens(unknown, 0):
            if length is None:
                self._silent[one.replica_id] = time.monotonic() + SILENT_S
            else:
                has[one.replica_id.to_full_id_str()] = length
        return has

    async def _ask(self, text: str, replicas: list[str]) -> tuple[int, list[str]]:
        if not self._answering():
            return 0, []
        try:
            found: tuple[int, list[str]] = await asyncio.wait_for(self._tree.owners.remote(text, replicas), PATIENCE_S)
        except Exception as error:
            self._failed(error)
            return 0, []
        return found

    def _tell(self, what: str, *told: Any) -> None:
        """Without waiting for it."""
        if self._answering():
            try:
                getattr(self._tree, what).remote(*told)
            except Exception as error:
                self._failed(error)

    def _answering(self) -> bool:
        """Whether it is worth while to ask the tree, as far as is known."""
        if time.monotonic() < self._resumes:
            return False
        if self._tree is None:
            self._reach()
        return self._tree is not None

    def _failed(self, error: Exception) -> None:
        logger.warning(f"no answer of the tree of beginnings for {PAUSE_S:.0f} s: {type(error).__name__}: {error}")
        self._resumes = time.monotonic() + PAUSE_S
        if isinstance(error, ActorDiedError):
            # For good: Ray starts it again where its process or its node died.
            self._tree = None

    def _reach(self) -> None:
        """In a thread: it may have to wait for Ray, and a request must not."""
        if self._reaching is None or not self._reaching.is_alive():
            self._resumes = time.monotonic() + PAUSE_S
            self._reaching = threading.Thread(target=self._reached, daemon=True)
            self._reaching.start()

    def _reached(self) -> None:
        try:
            self._tree = prefix_tree.reach(self._deployment_id)
        except Exception:
            logger.exception("no tree of beginnings")
        else:
            self._resumes = 0.0


def text_of(args: list[Any]) -> str:
    """What of the arguments of a request is the beginning of its answer: messages, or a prompt, each token of it as one
    character."""
    return "".join(
        piece for arg in args for piece in _pieces(getattr(arg, "messages", None) or getattr(arg, "prompt", None))
    )


def _pieces(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, int):
        # Any number a client may send, and no surrogate, which cannot be sent on.
        yield chr(0x10000 + part % 0x100000)
    elif isinstance(part, Mapping):
        yield from _pieces(part.get("content") or part.get("text"))
    elif isinstance(part, list | tuple):
        for one in part:
            yield from _pieces(one)
