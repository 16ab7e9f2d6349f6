"""The OpenAI format of chats: a Request as a JSON body, a JSON answer as a Completion, a refusal in words.

Pure. Knows nothing of connections, retries or waiting; what may be tried again is said by the exception.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from kb_ray.errors import ContextError, ModelError
from kb_ray.extract import split_reasoning
from kb_ray.model.completer import ModelInfo, Request
from kb_ray.records import Completion, Message, Sampling, Usage

MAX_WORDS = 300
"""Characters of a server's own words that go into a message."""

# How vLLM, OpenAI and llama.cpp say that prompt and answer do not fit the window.
_CONTEXT = re.compile(
    r"context[ _]length|max_model_len|maximum model length|context (window|size)|prompt is too long", re.I
)
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, as JSON may spell it: no request and no file can hold it."""
_MOST_TOKENS = 1 << 31


class Malformed(Exception):
    """An answer with status 200 that is no completion. Worth another try: proxies and restarts do this."""


def request_body(request: Request, model: str) -> dict[str, Any]:
    """The JSON body of one chat request. Reasoning of earlier turns is not part of the format."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": _sent(request.messages),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


def tokenize_chat_body(messages: Sequence[Message], model: str) -> dict[str, Any]:
    """The JSON body of vLLM's POST /tokenize for a chat, counted as the prompt of an answer."""
    return {"model": model, "messages": _sent(messages), "add_generation_prompt": True}


def tokenize_text_body(messages: Sequence[Message], model: str) -> dict[str, Any]:
    """The same for a server whose route takes plain text only: what the chat template adds is not counted."""
    return {"model": model, "prompt": "\n".join(message.content for message in messages)}


def template_tokens(messages: Sequence[Message]) -> int:
    """Tokens that a chat template adds to the text, rather too many: role names, marks, a date."""
    return 16 * len(messages) + 64


def token_count(answer: bytes) -> int:
    """What POST /tokenize counted. Malformed where it is another server's route of that name."""
    count = json_object(answer).get("count")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise Malformed("an answer without a count of tokens")
    return count


def _sent(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": _whole(message.content)} for message in messages]


def _whole(text: str) -> str:
    return _HALF.sub("\ufffd", text)


def completion(answer: bytes, *, model: str, sampling: Sampling) -> Completion:
    """The first choice of a chat answer. Malformed when there is none."""
    data = json_object(answer)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Malformed("an answer without choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise Malformed("a choice without a message")
    finish_reason = _whole(str(choices[0].get("finish_reason") or "unknown"))
    text, reasoning = _text_and_reasoning(message, cut=finish_reason == "length")
    return Completion(
        text=text,
        reasoning=reasoning,
        finish_reason=finish_reason,
        usage=_usage(data.get("usage")),
        model=model,
        sampling=sampling,
    )


def answering_model(answer: bytes) -> str | None:
    """The model that an answer says it is of; None where it says nothing. Malformed when it is no JSON object."""
    told = json_object(answer).get("model")
    return told if isinstance(told, str) and told else None


def _text_and_reasoning(message: dict[str, Any], *, cut: bool) -> tuple[str, str | None]:
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        raise Malformed("a message whose content is no text")
    # vLLM has renamed the field; older servers and other ones still use the longer name.
    for name in ("reasoning", "reasoning_content"):
        reasoning = message.get(name)
        if isinstance(reasoning, str) and reasoning:
            return _whole(content or ""), _whole(reasoning)
    return split_reasoning(_whole(content or ""), cut=cut)


def _usage(usage: Any) -> Usage:
    """What a server counted; 0 for what is no count."""
    counts = usage if isinstance(usage, dict) else {}

    def count(name: str) -> int:
        value = counts.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS:
            return value
        return 0

    return Usage(prompt_tokens=count("prompt_tokens"), completion_tokens=count("completion_tokens"))


def models(answer: bytes) -> list[ModelInfo]:
    """What GET /models lists, in its order. Malformed when it is no such list."""
    listed = json_object(answer).get("data")
    if not isinstance(listed, list):
        raise Malformed("an answer without a list of models")
    return [
        ModelInfo(model=card["id"], max_model_len=_window(card), adapter_of=_base(card))
        for card in listed
        if isinstance(card, dict) and isinstance(card.get("id"), str)
    ]


# vLLM's own server names these one way, the Serve application the other.


def _window(card: dict[str, Any]) -> int | None:
    told = (card.get("max_model_len"), _metadata(card).get("max_request_context_length"))
    return next((value for value in told if isinstance(value, int)), None)


def _base(card: dict[str, Any]) -> str | None:
    """The model that a LoRA adapter belongs to; None where the card is that of a model."""
    told = (card.get("parent"), _metadata(card).get("base_model_id"))
    return next((value for value in told if isinstance(value, str) and value and value != card["id"]), None)


def _metadata(card: dict[str, Any]) -> dict[str, Any]:
    found = card.get("metadata")
    return found if isinstance(found, dict) else {}


def may_retry(status: int) -> bool:
    """Whether an HTTP status says that the same request may succeed later."""
    return status in _RETRIED_STATUS or status >= 500


def refusal(status: int, answer: bytes, url: str) -> ModelError:
    """The error that a final refusal (4xx) of a chat request becomes."""
    said = words(answer)
    if status in (400, 413, 422) and _CONTEXT.search(said):
        return ContextError(f"prompt and answer do not fit the model's window: {said}")
    if status in (401, 403):
        return ModelError(f"{url} refuses the API key ({status}): set --api-key or VLLM_API_KEY")
    return ModelError(f"{url} refuses the request ({status}): {said}")


def words(answer: bytes) -> str:
    """What an error body says, as one bounded line."""
    try:
        data: Any = json.loads(answer)
    except (ValueError, RecursionError):
        data = answer.decode("utf-8", "replace")
    for key in ("error", "message", "detail"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    line = " ".join(str(data).split())
    # Ray Serve wraps the message in its own story, request number first.
    line = re.sub(r"\s*\(Request ID: .*", "", line.removeprefix("Message: "))
    if not line:
        return "no reason given"
    return line if len(line) <= MAX_WORDS else line[:MAX_WORDS] + "..."


def json_object(answer: bytes) -> dict[str, Any]:
    """The JSON object that `answer` is. Malformed when it is none."""
    try:
        data = json.loads(answer)
    # The second is of JSON that nests without end.
    except (ValueError, RecursionError):
        raise Malformed("an answer that is no JSON") from None
    if not isinstance(data, dict):
        raise Malformed("an answer that is no JSON object")
    return data
