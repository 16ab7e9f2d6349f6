"""Where a deployment file is served: the address to listen on, whether it is free, the URL to ask it by.

Knows the shape of a Serve config file, not what is served.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from kb_ray.errors import ConfigError

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""An address that is all of a machine's -> one to talk to."""


def http_options(config: dict[str, Any], host: str | None, port: int | None) -> dict[str, Any]:
    """Serve's HTTP options: the file's, with what was asked for over them; local ones where neither says."""
    http = {"host": "127.0.0.1", "port": 8000, **(config.get("http_options") or {})}
    return {**http, **{key: value for key, value in (("host", host), ("port", port)) if value is not None}}


def url(http: dict[str, Any]) -> str:
    """The URL without a path at which a server with these options is reached from its own machine."""
    return f"http://{_bracketed(_ANY.get(http['host'], http['host']))}:{http['port']}"


def check_port(host: str, port: int) -> None:
    """ConfigError where nothing can listen there: something else does, no such address, no right to."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        what = "end what serves there, or give another --port" if taken else "give another --host or --port"
        raise ConfigError(f"cannot listen on {_bracketed(host)}:{port} ({error.strerror}): {what}") from None
    except OverflowError:
        raise ConfigError(f"--port {port}: ports go from 0 to 65535") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
