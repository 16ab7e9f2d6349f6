"""Credentials that end while a store is open: told as something that may pass, and new ones are found by themselves."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kb_ray.traces.store import StoreUnavailable, open_store
from tests.chaos.faulty_s3 import Fault, faulty
from tests.fixtures_s3 import ADMIN, RENEWED, S3Server


def write(path: Path, credentials: tuple[str, str]) -> None:
    path.write_text(f"[default]\naws_access_key_id = {credentials[0]}\naws_secret_access_key = {credentials[1]}\n")


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a store opened now reads."""
    path = tmp_path / "credentials"
    write(path, ADMIN)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return path


def test_expired_ones_may_pass_and_renewed_ones_are_used_without_opening_the_store_again(
    s3_server: S3Server, credentials: Path
) -> None:
    with faulty(s3_server.endpoint) as proxy:
        store = open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}", endpoint_url=proxy.endpoint)
        assert store.put_if_absent("parts/a", b"1")
        proxy.decide = lambda method, path, key: Fault("refuse", 400, "ExpiredToken") if key == ADMIN[0] else None
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="the session token has expired, renew the credentials"):
                store.put_if_absent("parts/b", b"2")
        write(credentials, RENEWED)
        with pytest.raises(StoreUnavailable):
            store.get("parts/a")
        assert store.get("parts/a") == b"1"
        assert store.put_if_absent("parts/b", b"2")


def test_a_file_that_is_being_written_is_not_the_end(s3_server: S3Server, credentials: Path) -> None:
    with faulty(s3_server.endpoint) as proxy:
        store = open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}", endpoint_url=proxy.endpoint)
        proxy.decide = lambda method, path, key: Fault("refuse", 400, "ExpiredToken") if key == ADMIN[0] else None
        credentials.write_text("[default\n")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.put_if_absent("parts/a", b"1")
        write(credentials, RENEWED)
        with pytest.raises(StoreUnavailable):
            store.put_if_absent("parts/a", b"1")
        assert store.put_if_absent("parts/a", b"1")
