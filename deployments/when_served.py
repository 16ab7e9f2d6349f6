"""`python -m deployments.when_served URL COMMAND ...`: waits until what is served at URL answers, then becomes COMMAND.

`serve deploy` returns before nodes have come and weights are loaded; a run that is started meanwhile finds no model and
ends. Models are listed before they can answer, so each is asked for one token. Exit code: COMMAND's, 1 where no model
came within `--minutes`, 2 for unusable input. Knows nothing of runs.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, NoReturn

from kb_ray.env_vars import VLLM_API_KEY
from kb_ray.errors import ConfigError, InfraError, KbRayError
from kb_ray.flag_parser import FlagParser
from kb_ray.model import wire

LOOK_S = 5.0
"""From one look to the next."""
TELL_S = 60.0
"""From one line about what is waited for to the next."""
_ANSWER_S = 30.0
"""An application whose models still load takes a request and answers it later, or never."""
_FINAL = frozenset({400, 401, 403})
"""Statuses that waiting does not change."""
_NOT_YET = frozenset({404, 408, 409, 425, 429})
"""Of a model, beside those from 500 on. Whatever else it refuses, it is there: the command is told why."""


def wait(url: str, seconds: float) -> None:
    """Returns once all models that `url` lists answer; it ends in /v1. ConfigError where they never will, InfraError
    after `seconds`."""
    give_up, tell = time.monotonic() + seconds, 0.0
    while (why := _lacking(url)) is not None:
        now = time.monotonic()
        if now >= give_up:
            raise InfraError(f"no model at {url} within {seconds / 60:g} minutes ({why}): `serve status` says more")
        if now >= tell:
            print(f"waiting for a model at {url}: {why}", flush=True)
            tell = now + TELL_S
        time.sleep(min(LOOK_S, give_up - now))


def _lacking(url: str) -> str | None:
    """Why there is no model yet; None where all are there. ConfigError where waiting changes nothing."""
    try:
        listed = [model.model for model in wire.models(_asked(f"{url}/models")) if model.adapter_of is None]
    except urllib.error.HTTPError as error:
        if error.code in _FINAL:
            raise ConfigError(f"{url}/models gives status {error.code}: the address and {VLLM_API_KEY}?") from None
        return f"status {error.code}"
    except wire.Malformed as error:
        return str(error)
    except (http.client.InvalidURL, ValueError) as error:
        raise ConfigError(f"{url} is no address of a model server ({error}): http://HOST:8000/v1") from None
    except (http.client.HTTPException, OSError) as error:
        return _said(error)
    if not listed:
        return "it lists no model"
    silent = ((model, _silence(url, model)) for model in listed)
    return next((f"{model} is listed and does not answer yet: {why}" for model, why in silent if why), None)


def _silence(url: str, model: str) -> str | None:
    """Why a model gives no answer yet; None where it does."""
    body = {"model": model, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
    try:
        _asked(f"{url}/chat/completions", body)
    except urllib.error.HTTPError as error:
        return f"status {error.code}" if error.code >= 500 or error.code in _NOT_YET else None
    except (http.client.HTTPException, OSError) as error:
        return _said(error)
    return None


def _asked(address: str, body: dict[str, Any] | None = None) -> bytes:
    headers = {"Authorization": f"Bearer {key}"} if (key := _key()) else {}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=_ANSWER_S) as response:
        return bytes(response.read())


def _said(error: http.client.HTTPException | OSError) -> str:
    if isinstance(error, http.client.HTTPException):
        # A port that speaks no HTTP, or an answer that was broken off: what is behind it is still coming up.
        return f"no whole HTTP answer: {' '.join(str(error).split()) or type(error).__name__}"
    return str(getattr(error, "reason", error))


def _key() -> str:
    """The key of the model server, or nothing. ConfigError, which does not tell it, where no header can carry it."""
    key = os.environ.get(VLLM_API_KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the API key has characters that no header can carry: check {VLLM_API_KEY}")
    return key


def main(argv: Sequence[str] | None = None) -> int:
    """Waits, then replaces this process by the command; returns the exit code where it does not come to that."""
    parser = FlagParser(prog="python -m deployments.when_served", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0, help="how long to wait (default: %(default)g)")
    parser.add_argument("url", help="the model server's address, which ends in /v1")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to start, with its arguments")
    try:
        given = parser.parse_args(argv)
        command = _checked(given.url, given.command)
        wait(given.url.rstrip("/"), 60 * given.minutes)
        _become(command)
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


def _become(command: list[str]) -> NoReturn:
    """In this process's place, so that signals and the exit code are the command's own."""
    os.execv(command[0], command)


def _checked(url: str, command: list[str]) -> list[str]:
    """The command with its program in full: a slip of the pen is to be found before the wait."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no address of a model server: http://HOST:8000/v1")
    if not url.rstrip("/").endswith("/v1"):
        raise ConfigError(f"{url}: pass the address that ends in /v1")
    if not command:
        raise ConfigError("name a command to start once the model is served")
    program = shutil.which(command[0])
    if program is None:
        raise ConfigError(f"there is no command {command[0]}")
    return [program, *command[1:]]


if __name__ == "__main__":
    sys.exit(main())
