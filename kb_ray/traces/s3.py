"""The S3 side of the trace store: conditional puts, ranged reads, and errors told in one line.

Works with Amazon S3 and with servers that speak its protocol, as long as they honour `If-None-Match` on a put
(`check_writable` finds out). Knows nothing of Parquet or episodes.
"""

from __future__ import annotations

import io
import secrets
from contextlib import suppress
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    LoginError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)

from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces.store import Reader, StoreRefused, StoreUnavailable, endpoint_from_environment

# A part of a normal flush is smaller: it is read by one request.
_TAIL_BYTES = 512 * 1024
_CONNECTIONS = 32
_IN_PARTS = 64 * 1024**2
"""Bytes from which an object is replaced in parts, each with tries of its own."""
_ONE_PUT = 5 * 1000**3
"""Bytes that one put may have. What is larger is created in parts too; what is not, by one put, since not every server
takes the completion of parts and its condition in one step: SeaweedFS lets several writers through at once."""
_PART_BYTES = 64 * 1024**2
"""Of an object that is created in parts; it may have 10,000 of them."""
# Two requests of two tries each stay under the 10 s that a preflight check may take.
_CHECK = Config(connect_timeout=2, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 2})
_WORK = Config(
    connect_timeout=10,
    read_timeout=60,
    max_pool_connections=_CONNECTIONS,
    retries={"mode": "standard", "total_max_attempts": 4},
)
_FAILURES = (BotoCoreError, ClientError, RuntimeError)
"""The last is what botocore raises for credentials that are renewed and still expired."""
_NOT_RENEWED = (CredentialRetrievalError, LoginError, SSOError, TokenRetrievalError)
"""Whoever hands credentials out gave none this time: a login that is over, a process or service that failed."""
_EXISTS = frozenset({"PreconditionFailed", "412"})
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired"})
# A clock that went wrong is set right again; until then every signature looks too old.
_PASSING = _EXPIRED | {
    "SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "ConditionalRequestConflict", "OperationAborted",
    "Throttling",
    # Also of one that an earlier try completed, whose answer was lost.
    "NoSuchUpload",
}  # fmt: skip
_ADVICE = {
    "NoSuchBucket": "there is no such bucket, create it or correct the name",
    "AccessDenied": "access denied, these credentials must list, get and put under the prefix",
    "InvalidAccessKeyId": "the server does not know this access key, check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key is wrong, check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the session token has expired, renew the credentials",
    "TokenRefreshRequired": "the session token has expired, renew the credentials",
    "RequestTimeTooSkewed": "this machine's clock and the server's differ too much, set it right",
    "PermanentRedirect": "the bucket is in another region, set AWS_DEFAULT_REGION",
}


class S3Store:
    """A prefix of a bucket. Credentials, region and endpoint come from the usual AWS settings."""

    def __init__(self, bucket: str, prefix: str, endpoint_url: str | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint = endpoint_url or endpoint_from_environment()
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self._client = self._connect(_WORK)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """See Store. One larger than a put appears when its last part is there; of a failed try nothing stays."""
        name = self._prefix + key
        try:
            if len(data) <= _ONE_PUT:
                self._client.put_object(Bucket=self._bucket, Key=name, Body=data, IfNoneMatch="*")
            else:
                self._create_in_parts(name, data)
        except _FAILURES as error:
            if _code(error) in _EXISTS:
                return False
            raise self._failure(error) from error
        return True

    def replace(self, key: str, data: bytes) -> None:
        """See Store. A large one appears when its last part is there; of a failed try nothing stays."""
        name = self._prefix + key
        try:
            if len(data) < _IN_PARTS:
                self._client.put_object(Bucket=self._bucket, Key=name, Body=data)
            else:
                by = TransferConfig(multipart_threshold=_IN_PARTS, preferred_transfer_client="classic")
                self._client.upload_fileobj(io.BytesIO(data), self._bucket, name, Config=by)
        except _FAILURES as error:
            raise self._failure(error) from error

    def get(self, key: str) -> bytes | None:
        """See Store."""
        found = self.versioned(key)
        return None if found is None else found[0]

    def versioned(self, key: str) -> tuple[bytes, str] | None:
        """See Store. The version is the ETag."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            return bytes(answer["Body"].read()), str(answer.get("ETag", ""))
        except _FAILURES as error:
            if _code(error) in _MISSING:
                return None
            raise self._failure(error) from error

    def replace_if(self, key: str, data: bytes, version: str) -> str | None:
        """See Store."""
        name = self._prefix + key
        try:
            answer = self._client.put_object(Bucket=self._bucket, Key=name, Body=data, IfMatch=version)
        except _FAILURES as error:
            if _code(error) in _EXISTS | _MISSING:
                return None
            raise self._failure(error) from error
        return str(answer["ETag"])

    def open(self, key: str) -> Reader:
        """See Store. The first request brings the end, where Parquet keeps its table of contents."""
        return _RangeReader(self, key)

    def list(self, prefix: str) -> list[str]:
        """See Store."""
        pages = self._client.get_paginator("list_objects_v2")
        found: list[str] = []
        try:
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                found += [entry["Key"][len(self._prefix) :] for entry in page.get("Contents", ())]
        except _FAILURES as error:
            raise self._failure(error) from error
        return sorted(found)

    def delete(self, key: str) -> None:
        """See Store."""
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)
        except _FAILURES as error:
            raise self._failure(error) from error

    def check_writable(self) -> None:
        """See Store. Tries a put that can only be refused: with a permission to write, for its condition."""
        client = self._connect(_CHECK)
        key = f"{self._prefix}.write-check-{secrets.token_hex(8)}"
        try:
            client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
            client.put_object(Bucket=self._bucket, Key=key, Body=b"", IfMatch='"' + "0" * 32 + '"')
        except _FAILURES as error:
            if _code(error) in _EXISTS | _MISSING:
                return
            raise ConfigError(str(self._failure(error))) from error
        client.delete_object(Bucket=self._bucket, Key=key)
        raise ConfigError(
            f"trace store {self.uri}: the server at {self._where()} ignores conditions on a put, so that "
            "nothing can be written exactly once: use a newer server or a local folder"
        )

    def read_range(self, key: str, byte_range: str) -> tuple[bytes, int]:
        """Bytes of an HTTP range (`bytes=0-99`, `bytes=-100`) and the object's whole size."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, Range=byte_range)
            data = bytes(answer["Body"].read())
        except _FAILURES as error:
            raise self._failure(error) from error
        # `bytes 0-99/1234`; a server that ignores ranges sends the whole object and no such header.
        size = answer.get("ContentRange", "").rpartition("/")[2]
        return data, int(size or len(data))

    def _create_in_parts(self, name: str, data: bytes) -> None:
        """As one put with `If-None-Match`; the transfer manager that `replace` uses knows no conditions."""
        client, where = self._client, {"Bucket": self._bucket, "Key": name}
        upload = where | {"UploadId": client.create_multipart_upload(**where)["UploadId"]}
        try:
            parts = []
            for number, start in enumerate(range(0, len(data), _PART_BYTES), start=1):
                sent = client.upload_part(**upload, PartNumber=number, Body=data[start : start + _PART_BYTES])
                # Amazon wants the checksums again that botocore sent with the parts.
                told = {
                    field: value for field, value in sent.items() if field == "ETag" or field.startswith("Checksum")
                }
                parts.append(told | {"PartNumber": number})
            client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
        except BaseException:
            with suppress(*_FAILURES):
                client.abort_multipart_upload(**upload)
            raise

    def _connect(self, config: Config) -> Any:
        try:
            # A session of its own: boto3's default one is not safe to share between threads.
            return boto3.session.Session().client("s3", endpoint_url=self._endpoint, config=config)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"trace store {self.uri}: {error}; check the AWS settings") from error

    def _look_for_new_credentials(self) -> None:
        """For the next call: a client never reads files and profiles again by itself."""
        with suppress(ConfigError):
            self._client = self._connect(_WORK)

    def _where(self) -> str:
        return self._endpoint or "Amazon S3"

    def _failure(self, error: Exception) -> StoreError:
        if isinstance(error, RuntimeError) and "credentials" not in str(error).lower():
            raise error
        if _code(error) in _EXPIRED:
            self._look_for_new_credentials()
        kind = StoreUnavailable if _may_pass(error) else StoreRefused
        return kind(f"trace store {self.uri}: {self._explain(error)}")

    def _explain(self, error: Exception) -> str:
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            return "no AWS credentials, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE"
        if _not_renewed(error):
            return f"credentials have expired or cannot be had, renew them or log in again ({one_line(error)})"
        if isinstance(error, ConnectionError | HTTPClientError):
            return f"{self._where()} does not answer, check the server and AWS_ENDPOINT_URL ({one_line(error)})"
        return _ADVICE.get(_code(error)) or f"{self._where()} refused: {one_line(error)}"


class _RangeReader(io.RawIOBase):
    """Random access to one object; its last half megabyte comes with the first request."""

    def __init__(self, store: S3Store, key: str) -> None:
        self._store, self._key, self._position = store, key, 0
        self._tail, self._size = store.read_range(key, f"bytes=-{_TAIL_BYTES}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        start = self._position
        end = self._size if size < 0 else min(self._size, start + size)
        if start >= end:
            return b""
        self._position = end
        tail_start = self._size - len(self._tail)
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        return self._store.read_range(self._key, f"bytes={start}-{end - 1}")[0]


def one_line(error: BaseException) -> str:
    """The error's text without line breaks."""
    return " ".join(str(error).split())


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _not_renewed(error: Exception) -> bool:
    return isinstance(error, (*_NOT_RENEWED, RuntimeError))


def _may_pass(error: Exception) -> bool:
    if isinstance(error, ConnectionError | HTTPClientError | IncompleteReadError) or _not_renewed(error):
        return True
    if not isinstance(error, ClientError):
        return False
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return status >= 500 or status in (408, 409, 429) or _code(error) in _PASSING
