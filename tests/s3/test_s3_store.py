"""The S3 store against a real server: the contract, and what is said where it cannot be used."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import boto3
import pytest

from kb_ray.errors import ConfigError
from kb_ray.traces import s3
from kb_ray.traces.run import RunInfo, open_run
from kb_ray.traces.store import Store, StoreRefused, StoreUnavailable, open_store
from tests.chaos.faulty_s3 import Fault, faulty
from tests.fixtures_s3 import ADMIN, S3Server, free_ports
from tests.unit.traces.store_contract import StoreContract


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    use(monkeypatch, s3_server.env)
    return open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/run")


def use(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)


class TestS3Store(StoreContract):
    pass


def uploads(s3_server: S3Server, store: Store) -> list[str]:
    """Keys of objects of which parts lie there and which were neither completed nor given up."""
    prefix = store.uri.removeprefix(f"s3://{s3_server.bucket}/")
    found = boto3.client("s3", endpoint_url=s3_server.endpoint).list_multipart_uploads(
        Bucket=s3_server.bucket, Prefix=prefix
    )
    return [upload["Key"] for upload in found.get("Uploads", ())]


def test_what_is_too_large_for_one_put_is_created_in_parts_and_once(
    s3_server: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_ONE_PUT", 100)
    monkeypatch.setattr(s3, "_PART_BYTES", 5 * 1024**2)
    large = secrets.token_bytes(12 * 1024**2 + 1)
    assert store.put_if_absent("final/a", large) is True
    assert store.put_if_absent("final/a", large[1:]) is False
    found = store.versioned("final/a")
    assert found is not None
    assert found[0] == large
    assert "-3" in found[1], "the ETag of an object in parts names their number"
    assert uploads(s3_server, store) == [], "of a refused try nothing stays"


def completes(method: str, path: str) -> bool:
    """Whether a request is the one that makes an object of its parts."""
    return method == "POST" and "uploadId=" in path


def test_a_part_that_is_refused_leaves_nothing_and_a_lost_answer_does_no_harm(
    s3_server: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_ONE_PUT", 1)
    monkeypatch.setattr(s3, "_PART_BYTES", 5 * 1024**2)
    with faulty(s3_server.endpoint) as proxy:
        there = open_store(store.uri, endpoint_url=proxy.endpoint)
        proxy.decide = lambda method, path, key: (
            Fault("refuse", 403, "AccessDenied") if "partNumber=2" in path else None
        )
        with pytest.raises(StoreRefused, match="access denied"):
            there.put_if_absent("final/a", bytes(6 * 1024**2))
        assert (store.list(""), uploads(s3_server, store)) == ([], [])

        # Of an upload that is gone it is not known whether an earlier try completed it.
        proxy.decide = lambda method, path, key: (
            Fault("refuse", 404, "NoSuchUpload") if completes(method, path) else None
        )
        with pytest.raises(StoreUnavailable, match="NoSuchUpload"):
            there.put_if_absent("final/a", b"whole")

        def lose_first(method: str, path: str, key: str) -> Fault | None:
            return Fault("lose") if completes(method, path) and Fault("lose") not in proxy.faults else None

        proxy.decide = lose_first
        # The answer to the try that wrote it was lost: whoever asks again is told that it is there.
        assert there.put_if_absent("final/a", b"whole") is False
        assert Fault("lose") in proxy.faults
    assert store.get("final/a") == b"whole"
    assert uploads(s3_server, store) == []


def test_what_is_too_large_for_one_put_is_sent_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of 8 MiB: three of them, the last one smaller."""
    monkeypatch.setattr(s3, "_IN_PARTS", 10 * 1024**2)
    large = secrets.token_bytes(20 * 1024**2 + 1)
    for data in (b"small", large, b"small again", large[1:]):
        store.replace("state.pt", data)
        found = store.versioned("state.pt")
        assert found is not None
        assert found[0] == data
        assert ("-3" in found[1]) is (len(data) > 100), "the ETag of an object in parts names their number"
        assert store.list("") == ["state.pt"]


def test_a_store_that_is_away_is_told_for_large_objects_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    away = open_store(store.uri, endpoint_url=f"http://127.0.0.1:{free_ports(1)[0]}")
    for threshold in (1 << 40, 1):
        monkeypatch.setattr(s3, "_IN_PARTS", threshold)
        with pytest.raises(StoreUnavailable, match="does not answer"):
            away.replace("state.pt", b"x" * 100)
        with pytest.raises(StoreRefused, match="no such bucket"):
            open_store("s3://kb-no-such-bucket/run").replace("state.pt", b"x" * 100)


def test_stores_of_different_prefixes_do_not_see_each_other(store: Store) -> None:
    other = open_store(store.uri + "-2")
    other.put_if_absent("parts/a", b"1")
    assert store.list("") == []
    assert other.list("") == ["parts/a"]


def test_a_whole_bucket_is_a_store(s3_server: S3Server, store: Store) -> None:
    store.put_if_absent("parts/a", b"1")
    whole = open_store(f"s3://{s3_server.bucket}/")
    assert whole.uri == f"s3://{s3_server.bucket}"
    assert f"{store.uri.removeprefix(whole.uri + '/')}/parts/a" in whole.list("")


def refusal(uri: str, limit_s: float = 10.0) -> str:
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        open_store(uri).check_writable()
    assert time.monotonic() - began < limit_s
    assert "\n" not in str(caught.value)
    assert uri in str(caught.value)
    return str(caught.value)


def test_a_missing_bucket_is_named(store: Store) -> None:
    assert "no such bucket" in refusal("s3://kb-no-such-bucket/run")


def test_credentials_that_may_only_read_are_refused(
    s3_server: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, s3_server.reader_env)
    assert "access denied" in refusal(store.uri)
    info = RunInfo(
        run_id="r", fingerprint="f", identity={}, config={}, versions={}, created_at="2026-01-02T03:04:05+00:00"
    )
    with pytest.raises(ConfigError, match="access denied"):
        open_run(open_store(store.uri), info)
    assert store.list("") == []


def test_a_wrong_secret_and_an_unknown_key_are_told_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        assert "AWS_SECRET_ACCESS_KEY" in refusal(store.uri)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    assert "does not know this access key" in refusal(store.uri)


def test_missing_credentials_are_named(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert "no AWS credentials" in refusal(store.uri)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match="nobody"):
        open_store(store.uri)


def test_an_endpoint_that_refuses_connections_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert f"{endpoint} does not answer" in refusal(store.uri)


def test_an_endpoint_that_never_answers_is_given_up_within_ten_seconds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "does not answer" in refusal(store.uri)


def test_an_endpoint_that_is_no_url_is_the_users_error(store: Store) -> None:
    with pytest.raises(ConfigError, match="check the AWS settings"):
        open_store(store.uri, endpoint_url="not a url")


@pytest.fixture
def careless_server() -> Iterator[tuple[str, list[str]]]:
    """A server that takes every put whatever its conditions, as old S3 look-alikes do."""
    seen: list[str] = []

    class Careless(BaseHTTPRequestHandler):
        def answer(self) -> None:
            seen.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b"<ListBucketResult></ListBucketResult>" if self.command == "GET" else b""
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Careless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def test_a_server_that_ignores_conditions_is_refused_and_left_clean(
    careless_server: tuple[str, list[str]], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, seen = careless_server
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert "ignores conditions" in refusal(store.uri)
    put, delete = seen[-2:]
    assert put.startswith("PUT ")
    assert delete.removeprefix("DELETE ") == put.removeprefix("PUT ").partition("?")[0]


def test_a_server_that_is_away_is_an_outage_not_a_mistake(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    away = open_store(store.uri, endpoint_url=f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        away.put_if_absent("parts/a", b"1")


HANDS_OUT = """#!/bin/sh
# As a login does: what it hands out is always about to expire, so that it is asked each time.
case "$(cat {state})" in
  over) echo "log in again" >&2; exit 1 ;;
  old) expires=2020-01-01T00:00:00Z ;;
  *) expires=$(date -u -d '+5 minutes' +%Y-%m-%dT%H:%M:%SZ) ;;
esac
echo '{{"Version": 1, "AccessKeyId": "{key}", "SecretAccessKey": "{secret}", "Expiration": "'$expires'"}}'
"""


@pytest.mark.parametrize("trouble", ["over", "old"])
def test_credentials_that_nobody_hands_out_any_more_are_waited_for(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    state, script, config = tmp_path / "state", tmp_path / "hand-out", tmp_path / "config"
    script.write_text(HANDS_OUT.format(state=state, key=ADMIN[0], secret=ADMIN[1]))
    script.chmod(0o755)
    config.write_text(f"[default]\ncredential_process = {script}\nregion = us-east-1\n")
    state.write_text("fine")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    store = open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/run")
    assert store.put_if_absent("parts/a", b"1")
    state.write_text(trouble)
    with pytest.raises(StoreUnavailable, match=r"credentials have expired or cannot be had, renew them or log in"):
        store.put_if_absent("parts/b", b"2")
    state.write_text("fine")
    assert store.put_if_absent("parts/b", b"2")
