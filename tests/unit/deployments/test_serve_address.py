"""Where a deployment is served: ports that cannot be had are one line, URLs can be asked, with IPv6 and without."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from ray.serve.schema import HTTPOptionsSchema

from kb_ray.errors import ConfigError
from kb_ray.serve_address import check_port, http_options, url


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of 127.0.0.1 on which somebody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_port_in_use_is_said_before_anything_starts(taken: int) -> None:
    with pytest.raises(ConfigError, match="end what serves there, or give another --port"):
        check_port("127.0.0.1", taken)


def test_a_port_that_is_none_is_said() -> None:
    for port in (99999, 65536, 0, -1):
        with pytest.raises(ConfigError, match=f"{port} is no port: they go from 1 to 65535"):
            http_options({}, None, port)
        with pytest.raises(ConfigError, match="is no port"):
            http_options({"http_options": {"port": port}}, None, None)


@pytest.mark.parametrize("port", ["8123", 8123.0, 8123])
def test_a_port_is_what_serve_reads_in_the_file(port: object) -> None:
    file = {"http_options": {"host": "127.0.0.1", "port": port}}
    http = http_options(file, None, None)
    assert (http["port"], type(http["port"])) == (HTTPOptionsSchema(port=port).port, int)
    assert url(http) == "http://127.0.0.1:8123"


def test_a_certificate_is_refused_in_one_line_with_what_to_do() -> None:
    for name in ("ssl_certfile", "ssl_keyfile"):
        with pytest.raises(ConfigError, match=f"{name}.*put TLS in front of it, or serve the file by `serve deploy`$"):
            http_options({"http_options": {name: "/etc/a.pem"}}, None, None)


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
def test_a_port_of_ipv6_is_looked_at() -> None:
    with socket.socket(socket.AF_INET6) as listening:
        listening.bind(("::1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on \[::1\]:{port} .*another --port"):
            check_port("::1", port)
    check_port("::1", port)


def test_a_machine_without_ipv6_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = socket.socket

    def without_ipv6(family: int = socket.AF_INET, *more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return whole(family, *more)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    with pytest.raises(ConfigError) as caught:
        check_port("::1", 8000)
    assert str(caught.value) == (
        "cannot listen on [::1]:8000 (Address family not supported by protocol): give another --host or --port"
    )


def test_an_address_that_is_not_this_machines_is_told_from_one_in_use() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0 .*: give another --host or --port"):
        check_port("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("10.0.0.1", "http://10.0.0.1:8000"),
        ("localhost", "http://localhost:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("fe80::2", "http://[fe80::2]:8000"),
    ],
)
def test_the_address_told_is_one_that_can_be_asked(host: str, told: str) -> None:
    assert url({"host": host, "port": 8000}) == told
    assert httpx.URL(f"{told}/v1/models").port == 8000


def test_what_is_asked_for_goes_over_the_file_and_the_file_over_what_is_local() -> None:
    assert http_options({}, None, None) == {"host": "127.0.0.1", "port": 8000}
    file = {"http_options": {"host": "0.0.0.0", "port": 9000, "request_timeout_s": 5}}
    assert http_options(file, "::1", None) == {"host": "::1", "port": 9000, "request_timeout_s": 5}
    assert http_options(file, None, 1)["port"] == 1
