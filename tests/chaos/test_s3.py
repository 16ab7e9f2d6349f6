"""A store on S3 that fails in every way while a run writes to it: pauses at most, and nothing is lost or doubled."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.faulty_s3 import Fault, FaultyS3, faulty
from tests.chaos.running import check_nothing_left, check_sound, row_by_row, running
from tests.fixtures_chaos import ROUNDS
from tests.fixtures_run import Command, make_workload
from tests.fixtures_s3 import ADMIN, RENEWED, S3Server

STORM = (
    Fault("refuse", 500, "InternalError"),
    Fault("refuse", 503, "SlowDown"),
    Fault("lose"),
    Fault("slow", seconds=5.0),
)
LATE = Fault("slow", seconds=65.0)
"""Carried out after the client has stopped waiting for it, and written again meanwhile."""


@pytest.fixture
def proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """Before the server; this process asks the server itself."""
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    with faulty(s3_server.endpoint) as proxy:
        yield proxy


def test_errors_lost_answers_and_slow_uploads_cost_time_only(
    draw: random.Random, command: Command, s3_server: S3Server, proxy: FaultyS3, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 8), f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    arguments = row_by_row(workload, output, n_correctness=2)

    def storm(method: str, path: str, key: str) -> Fault | None:
        # Each of them when rows are written, where it can cost some; then any of them at any request.
        if method == "PUT" and "/parts/" in path and (dealt := next(deck, None)):
            return dealt
        # What is asked before anything is written must work: a run does not begin on a store that fails.
        begun = begun_at and time.monotonic() > begun_at[0]
        if method == "PUT" and "/leases/" in path and not begun_at:
            begun_at.append(time.monotonic() + 1.0)
        return draw.choice(STORM) if begun and draw.random() < 0.5 else None

    # The late one takes a minute.
    once = (*STORM, LATE) if ROUNDS > 1 else STORM
    deck = iter(draw.sample(once, len(once)))
    begun_at: list[float] = []
    proxy.decide = storm
    with running(arguments, tmp_path / "log", command.env | {"AWS_ENDPOINT_URL": proxy.endpoint}) as run:
        assert run.end() == 0, run.said
    assert set(proxy.faults) == set(once)
    check_sound(output, workload)
    check_nothing_left(output)


def test_credentials_that_expire_are_waited_for_and_taken_up_when_renewed(
    draw: random.Random, command: Command, s3_server: S3Server, proxy: FaultyS3, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 12), f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    credentials = tmp_path / "credentials"
    _write(credentials, ADMIN)
    env = command.env | {
        "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
        # Empty counts as not set.
        "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
    }  # fmt: skip
    with served(ErraticModel(draw, at_first=6)) as model:
        arguments = row_by_row(workload, output, url=model.url, n_correctness=2)
        with running(arguments, tmp_path / "log", env) as run:
            run.wait_for_rows(output, draw.randint(1, 5))
            proxy.decide = lambda method, path, key: Fault("refuse", 400, "ExpiredToken") if key == ADMIN[0] else None
            model.go_on()
            run.wait_for_words("the session token has expired")
            # Longer than a client's own tries, and than what a store that plainly refuses is given.
            time.sleep(draw.choice((5, 75)) if ROUNDS > 1 else 5)
            assert run.process.poll() is None, run.said
            _write(credentials, RENEWED)
            assert run.end() == 0, run.said
            assert "takes writes again" in run.said
    check_sound(output, workload)
    check_nothing_left(output)


def _write(path: Path, credentials: tuple[str, str]) -> None:
    path.write_text(f"[default]\naws_access_key_id = {credentials[0]}\naws_secret_access_key = {credentials[1]}\n")
