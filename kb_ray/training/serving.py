"""A model server that answers for a run of training: each step is published, and then drawn from by its name.

Wires the publisher of adapters, the server's address and the sampler. Knows no batch and no reward.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from kb_ray.errors import ConfigError
from kb_ray.learn.rollouts import Sampler
from kb_ray.learn.served import ServedSampler
from kb_ray.learn.stepping import Trainee
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.model.tokens_http import TokenClient
from kb_ray.traces.store import open_store
from kb_ray.training.publishing import Publisher
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings

_AT_ONCE = 256


class Served:
    """The server of one start of a run. `newest` publishes what the learner knows; use it as `async with`."""

    def __init__(
        self, settings: BestOfNSettings | GrpoSettings, learner: Trainee, run_id: str, start: str,
        may_write: Callable[[], None],
    ) -> None:  # fmt: skip
        """`start` and `may_write` as for the publisher. ConfigError where the address, or the place of adapters, cannot
        be used."""
        if settings.vllm_url is None or settings.adapters_path is None:
            raise ConfigError(
                "--vllm-url and --adapters-path go together: the server and its dynamic_lora_loading_path"
            )
        self._settings, self._learner = settings, learner
        self._run_id, self._start, self._may_write = run_id, start, may_write
        self._url, self._key = settings.vllm_url, os.environ.get("VLLM_API_KEY")
        self._store = open_store(settings.adapters_path)
        self._store.check_writable()
        self._client = TokenClient(self._url, self._key, max_concurrent=_AT_ONCE)
        self._publisher: Publisher | None = None
        self._first: ServedSampler | None = None

    async def newest(self) -> Sampler:
        """A sampler of the learner's weights as they are. ModelError where the server does not take them."""
        if self._first is None or self._publisher is None:
            self._first = await self._reached()
            self._publisher = Publisher(self._store, self._first.model, self._run_id, self._start, self._may_write)
        name = await asyncio.to_thread(self._publisher.publish, self._learner)
        return await self._first.at(name, self._learner.steps)

    async def _reached(self) -> ServedSampler:
        """A sampler of the base model. ConfigError where the server does not answer, or serves another one."""
        server = OpenAICompleter(self._url, self._settings.served_model or "", self._key)
        try:
            base = await server.check()
        finally:
            await server.aclose()
        return ServedSampler(
            self._client, self._learner.tokenizer, self._settings.sampling(), base.max_model_len, base.model, 0
        )

    async def __aenter__(self) -> Served:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
