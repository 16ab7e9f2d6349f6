"""A request to the HTTP service as it is sent, and whose fault it is where it cannot be.

What a data set fills, row by row, is held apart from what the caller chose: a bad row is the fault of its reference and
costs its own request alone. Pure; knows no connection and no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from kb_ray.bench.api import infra_verdict
from kb_ray.bench.static import MAX_CHARACTERS
from kb_ray.bench.unread import unread
from kb_ray.env_vars import BENCH_TOKEN
from kb_ray.errors import ConfigError, ReferenceFault, TaskError
from kb_ray.records import Verdict
from kb_ray.tasks.shapes import read_shapes

OF_THE_REFERENCE = ("problem_code", "reference_torch_code", "input_shapes")
"""Fields that a data set fills: what is wrong with one says nothing of other requests."""
_NO_JSON = (ValueError, TypeError, RecursionError)
"""Infinite numbers and halves of characters; what is no plain value; what nests without end."""
_UNSENT = {"kernel_code": "", "reference_torch_code": ""}
"""In a batch, in the place of a request that cannot be sent: numbers in what the service says stay the caller's."""


class TooLarge(ConfigError):
    """The service takes no body of this length."""


def sendable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with `input_shapes` as a plain mapping of what was read from them.

    Raises ReferenceFault where the reference or its shapes cannot be written as JSON, or the shapes are none.
    """
    try:
        sent = {**arguments, "input_shapes": _plain(arguments.get("input_shapes"))}
    except TaskError as error:
        raise ReferenceFault(str(error)) from None
    except _NO_JSON as error:
        raise ReferenceFault(f"input_shapes cannot be read: {_said(error)}") from None
    for name in OF_THE_REFERENCE:
        try:
            _json(sent.get(name))
        except _NO_JSON as error:
            raise ReferenceFault(f"{name} cannot be written as JSON: {_said(error)}") from None
    return sent


def of_many(arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], Verdict | None]:
    """(what is sent of a request in a batch, its verdict where none has to be asked for)."""
    verdict = unread_verdict(arguments)
    try:
        sent = sendable(arguments)
    except ReferenceFault as error:
        return _UNSENT, verdict or infra_verdict(str(error), reference=True)
    return (sent if verdict is None else sent | {"kernel_code": ""}), verdict


def unread_verdict(arguments: Mapping[str, Any]) -> Verdict | None:
    """The verdict on a candidate that nobody reads: sent, it would be refused on the way, and others with it."""
    code = arguments.get("kernel_code")
    return unread(code) if isinstance(code, str) else None


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body as JSON. ConfigError where it holds what JSON cannot."""
    try:
        return _json(body)
    except _NO_JSON as error:
        raise ConfigError(f"the request cannot be written as JSON: {_said(error)}") from None


def made_long_by_its_reference(sent: Mapping[str, Any]) -> bool:
    """Whether what its data set filled is by itself longer than a candidate may be."""
    return sum(len(_json(sent.get(name))) for name in OF_THE_REFERENCE) > MAX_CHARACTERS


def _plain(shapes: Any) -> dict[str, Any] | None:
    """The form that the service takes. What it would pass over, and could not be sent, is left out."""
    if shapes is None or shapes == {}:
        return None
    return {name: {"shape": list(spec.shape), "dtype": spec.dtype} for name, spec in read_shapes(shapes).items()}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def service_url(url: str) -> str:
    """The address of a service. ConfigError where it can be none, before anything is asked of it."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigError(f"{url!r} is no URL of a service: {error}") from None
    if found.scheme not in ("http", "https") or not found.host:
        raise ConfigError(f"{url!r} is no URL of a service: give one such as http://HOST:8100")
    return url


def header_token(token: str) -> str:
    """The token without the line end that a file leaves. ConfigError, which does not tell it, where no header can
    carry it: httpx's own words would."""
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"the token has characters that no header can carry: check `token` or {BENCH_TOKEN}")
    return token
