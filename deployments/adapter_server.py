"""A server of ray.serve.llm that answers from one adapter, whatever model a request names or leaves out.

Imports vLLM, through ray.serve.llm: named in a config, and imported where that is built or served.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray.serve.llm.deployment import LLMServer

from deployments.adapters import ADAPTER
from kb_ray import local_checkpoints


class AdapterServer(LLMServer):
    """One replica, its adapter fetched to its node before vLLM starts."""

    async def start(self) -> None:
        """See LLMServer. ConfigError or StoreError where the adapter is not to be had on this node, or not whole."""
        config = self._llm_config
        folder = await asyncio.to_thread(local_checkpoints.here, config.experimental_configs[ADAPTER])
        await asyncio.to_thread(local_checkpoints.check, folder, None)
        # vLLM looks among its adapters before it looks at its own name: under this one the base model never answers.
        config.get_engine_config().frontend_kwargs["lora_modules"] = [
            {"name": config.model_id, "path": str(folder.resolve())}
        ]
        await super().start()

    async def chat(self, request: Any, raw_request_info: Any = None) -> Any:
        """See LLMServer."""
        return await super().chat(self._named(request), raw_request_info)

    async def completions(self, request: Any, raw_request_info: Any = None) -> Any:
        """See LLMServer."""
        return await super().completions(self._named(request), raw_request_info)

    def _named(self, request: Any) -> Any:
        """A request without a model reaches the only one that there is; vLLM would answer from the base model."""
        return request if request.model else request.model_copy(update={"model": self._llm_config.model_id})
