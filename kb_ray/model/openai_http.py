"""A model behind an OpenAI-compatible HTTP server: vLLM, a Serve application, or any other.

Says which model answers and asks it for chats. Knows nothing of what a request is for, nothing of the format, which
is wire.py's, and nothing of tries and connections, which are posting.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Literal

import httpx

from kb_ray.errors import ConfigError, ModelError
from kb_ray.model import wire
from kb_ray.model.completer import ModelInfo, Request
from kb_ray.model.posting import Posting, Tries, reason
from kb_ray.records import Completion, Message, Sampling

CHECK_TIMEOUT_S = 8.0
"""So that a refusal, the command's own start included, takes less than 10 s."""
COUNT_TIMEOUT_S = 10.0
BUSY_WAIT_S = 1.0

_NOT_UNDERSTOOD = frozenset({400, 422})
_NO_ROUTE = frozenset({401, 403, 404, 405, 501})


class OpenAICompleter:
    """Answers requests through `POST {base_url}/chat/completions`, as patiently as `Posting` says.

    `model` may be empty until `check` has found the only one served.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        timeout_s: float = 600.0,
        max_retries: int = 8,
        max_concurrent: int = 10,
    ) -> None:
        self._server = Posting(base_url, api_key, Tries(timeout_s, max_retries, max_concurrent))
        self.base_url = self._server.shown
        self.model = model
        self.window: int | None = None
        self._told: str | None = None
        """The name in the first answer."""
        self._known_by_it = False
        """Whether the model was still served under its own name when another one came first."""
        self._counts: Literal["chat", "text"] | None = "chat"
        self._has_key = bool(api_key)

    async def complete(self, request: Request) -> Completion:
        """The answer. `latency_s` leaves out the wait for a free place, and counts every retry.

        ContextError when the prompt and the answer asked for exceed the model's window, ModelError for other
        refusals, when all tries failed, and where another model answers than before: a server may not look at the name.
        """
        read = partial(self._read, sampling=request.sampling)
        body = wire.request_body(request, self.model)
        answer, seconds = await self._server.post("chat/completions", body, read, f"model {self.model}")
        if self._told not in (None, self.model) and not self._known_by_it:
            await self._refuse_one_gone()
        return answer.model_copy(update={"latency_s": seconds})

    def _read(self, answer: bytes, sampling: Sampling) -> Completion:
        told = wire.answering_model(answer)
        # Some servers answer under a longer name of the same model; they do so from the first answer on.
        self._told = self._told or told
        if told not in (None, self.model, self._told):
            raise ModelError(
                f"model {self.model} at {self.base_url}: the answer is of {told}, earlier ones were of {self._told}; "
                "serve the model again, and start the run again for what is missing"
            )
        return wire.completion(answer, model=self.model, sampling=sampling)

    async def _refuse_one_gone(self) -> None:
        """ModelError where answers have another name and the model is not listed any more: another one came in its
        place before the first answer. Where the server does not list, nobody can tell."""
        try:
            async with asyncio.timeout(COUNT_TIMEOUT_S):
                response = await self._server.http.get(f"{self._server.url}/models")
            listed = [info.model for info in wire.models(response.content)] if response.is_success else []
        except (TimeoutError, httpx.RequestError, wire.Malformed):
            return
        if listed and self.model not in listed:
            raise ModelError(
                f"model {self.model} at {self.base_url}: the answer is of {self._told}, and {', '.join(listed)} is "
                "served there now; serve the model again, and start the run again for what is missing"
            )
        self._known_by_it = bool(listed)

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """What the server's own tokenizer makes of `messages`, by vLLM's POST /tokenize beside /v1.

        Where that route takes no chats, the text is counted and the template's share added, rather too much. None
        where there is no such route, which is found out once, or where it fails this time.
        """
        if self._counts == "chat":
            counted = await self._tokenize(wire.tokenize_chat_body(messages, self.model), otherwise="text")
            if self._counts == "chat":
                return counted
        if self._counts == "text":
            counted = await self._tokenize(wire.tokenize_text_body(messages, self.model), otherwise=None)
            return None if counted is None else counted + wire.template_tokens(messages)
        return None

    async def _tokenize(self, body: dict[str, object], otherwise: Literal["text"] | None) -> int | None:
        """The count; `otherwise` is how to go on where the server does not understand `body`."""
        url = f"{self._server.url.removesuffix('/v1')}/tokenize"
        try:
            async with asyncio.timeout(COUNT_TIMEOUT_S):
                response = await self._server.http.post(url, json=body)
            if response.is_success:
                return wire.token_count(response.content)
        except (TimeoutError, httpx.RequestError):
            return None
        except wire.Malformed:
            self._counts = None
            return None
        if response.status_code in _NOT_UNDERSTOOD:
            self._counts = otherwise
        elif response.status_code in _NO_ROUTE:
            self._counts = None
        return None

    async def check(self) -> ModelInfo:
        """The model that will answer, and its window. ConfigError, within CHECK_TIMEOUT_S, says why there is none."""
        response = await self._list_models()
        self._refuse_status(response)
        try:
            served = wire.models(response.content)
        except wire.Malformed as error:
            raise ConfigError(
                f"{self.base_url}/models gives {error}: is it an OpenAI-compatible server? Pass --vllm-url"
            ) from None
        info = self._choose(served)
        self.model, self.window = info.model, info.max_model_len
        return info

    async def _list_models(self) -> httpx.Response:
        failure = f"nothing for {CHECK_TIMEOUT_S:g} s"
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                while True:
                    response = await self._server.http.get(f"{self._server.url}/models")
                    if not wire.may_retry(response.status_code):
                        return response
                    # A server that is just starting says so with a 503.
                    failure = f"status {response.status_code}: {wire.words(response.content)}"
                    await asyncio.sleep(BUSY_WAIT_S)
        except TimeoutError:
            pass
        except httpx.RequestError as error:
            failure = reason(error)
        raise ConfigError(
            f"model server at {self.base_url} does not answer ({failure}): "
            "start one with `python -m kb_ray.serve`, or pass --vllm-url"
        )

    def _refuse_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            fault = "wrong API key for" if self._has_key else "an API key is needed at"
            raise ConfigError(f"{fault} {self.base_url} (status {status}): set --api-key or VLLM_API_KEY")
        if not response.is_success:
            told = f"{self.base_url}/models gives status {status}, {wire.words(response.content)}"
            if status == 404 and self.base_url.endswith("/v1"):
                raise ConfigError(f"{told}: no model is served there, or not yet (`serve status` tells)")
            raise ConfigError(f"{told}: pass the address that ends in /v1 as --vllm-url")

    def _choose(self, served: list[ModelInfo]) -> ModelInfo:
        if not served:
            raise ConfigError(f"{self.base_url} serves no model: load one there, or pass another --vllm-url")
        names = ", ".join(info.model for info in served)
        if not self.model:
            # Adapters of a model are listed beside it: who names none means the model.
            whole = [info for info in served if info.adapter_of is None]
            if len(whole) == 1:
                return whole[0]
            raise ConfigError(f"{self.base_url} serves {names}: name one with --model")
        for info in served:
            if info.model == self.model:
                return info
        raise ConfigError(
            f"model {self.model} is not served at {self.base_url}; served there: {names}: name one with --model"
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._server.aclose()
