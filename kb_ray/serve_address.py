"""Where a deployment file is served: the address to listen on, whether it is free, the URL to ask it by.

Knows the shape of a Serve config file, not what is served.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kb_ray.errors import ConfigError

PORTS = range(1, 65_536)
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""An address that is all of a machine's -> one to talk to."""


def http_options(config: dict[str, Any], host: str | None, port: int | None) -> dict[str, Any]:
    """Serve's HTTP options: the file's, with what was asked for over them; local ones where neither says.

    ConfigError for a port that is none, and for a certificate: what is served here is asked without one.
    """
    http = {"host": "127.0.0.1", "port": 8000, **(config.get("http_options") or {})}
    if http.get("ssl_certfile") or http.get("ssl_keyfile"):
        raise ConfigError(
            "http_options.ssl_certfile, ssl_keyfile: served from here is http alone; leave them out and put TLS in "
            "front of it, or serve the file by `serve deploy`"
        )
    asked = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    return {**http, **asked, "port": _port(asked.get("port", http["port"]))}


def _port(value: Any) -> int:
    """A port as Serve reads it: it takes "8000" and 8000.0 too."""
    try:
        port = TypeAdapter(int).validate_python(value)
    except ValidationError:
        port = 0
    if port not in PORTS:
        # Port 0 would be one of the system's choosing, which nobody here is told.
        raise ConfigError(f"{value!r} is no port: they go from {PORTS[0]} to {PORTS[-1]}")
    return port


def url(http: dict[str, Any]) -> str:
    """The URL without a path at which a server with these options is reached from its own machine."""
    return f"http://{_bracketed(_ANY.get(http['host'], http['host']))}:{http['port']}"


def check_port(host: str, port: int) -> None:
    """ConfigError where nothing can listen there: something else does, no such address, no right to. `port`: of
    `http_options`."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        what = "end what serves there, or give another --port" if taken else "give another --host or --port"
        raise ConfigError(f"cannot listen on {_bracketed(host)}:{port} ({error.strerror}): {what}") from None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
