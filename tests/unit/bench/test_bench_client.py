"""The client of the HTTP service against real HTTP servers on loopback: answers, streams, giving up."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import pytest

from kb_ray.bench import service
from kb_ray.bench.access import Access
from kb_ray.bench.client import AsyncBenchClient, BenchClient
from kb_ray.bench.retrying import Patience
from kb_ray.bench.service import Service
from kb_ray.env_vars import BENCH_TOKEN
from kb_ray.errors import ConfigError, InfraError, ReferenceFault
from tests.unit.bench.http_pieces import (
    BLAMES,
    FAILS,
    HANGS,
    ODD,
    RECOVERS,
    StaticVerifier,
    arguments,
    forbidden,
    serving,
)  # fmt: skip

SECRET = "a-token-of-enough-characters"


@pytest.fixture
def verifier() -> StaticVerifier:
    return StaticVerifier()


@pytest.fixture
def url(verifier: StaticVerifier) -> Iterator[str]:
    with serving(Service(verifier, "cpu", queue_limit=64, ahead=0)) as url:
        yield url


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def line_of(result: dict[str, Any]) -> int:
    line: int = result["error_detail"]["line"]
    return line


def test_answers_are_mappings_of_the_python_api_one_by_one_and_in_a_batch(url: str) -> None:
    with BenchClient(url) as client:
        one = client.evaluate(**arguments(forbidden(5)))
        many = client.batch([arguments(forbidden(line)) for line in (3, 1, 2)])
        odd = client.evaluate(**arguments(ODD))
        assert client.healthy()
    assert (one["status"], one["correctness"], one["speedup"], line_of(one)) == ("forbidden", False, None, 5)
    assert [line_of(result) for result in many] == [3, 1, 2]
    assert math.isnan(odd["error_detail"]["max_abs_error"])
    assert odd["error_detail"]["max_rel_error"] == -math.inf
    assert odd["error_detail"]["message"] == "NaN"


@pytest.mark.parametrize("ordered", [True, False])
def test_a_stream_gives_every_answer_once_to_its_own_request(url: str, verifier: StaticVerifier, ordered: bool) -> None:
    verifier.capacity = verifier.together = 8
    with BenchClient(url, at_once=16) as client:
        got = list(client.stream((arguments(forbidden(n + 1)) for n in range(60)), ordered=ordered))
    assert [number for number, _ in got] == list(range(60)) or not ordered
    assert sorted(number for number, _ in got) == list(range(60))
    assert all(line_of(result) == number + 1 for number, result in got)
    assert verifier.most == 8


def test_as_they_are_done_a_slow_one_holds_up_nobody(url: str) -> None:
    with BenchClient(url) as client:
        wanted = [arguments(HANGS), *(arguments(forbidden(n)) for n in (1, 2, 3))]
        stream = client.stream(wanted, ordered=False)
        assert {next(stream)[0] for _ in range(3)} == {1, 2, 3}
        stream.close()


def test_a_stream_reads_no_further_than_it_needs_and_leaving_it_cancels_the_rest(
    url: str, verifier: StaticVerifier
) -> None:
    read = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal read
        while True:
            read += 1
            yield arguments(forbidden(1) if read == 1 else HANGS)

    with BenchClient(url, at_once=3) as client:
        stream = client.stream(endless())
        assert next(stream)[0] == 0
        assert wait_for(lambda: verifier.running >= 2)
        stream.close()
        assert wait_for(lambda: verifier.running == 0)
    assert read <= 4
    assert verifier.cancelled >= 2


async def test_a_cancelled_call_is_cancelled_over_there(url: str, verifier: StaticVerifier) -> None:
    async with AsyncBenchClient(url) as client:
        call = asyncio.create_task(client.evaluate(**arguments(HANGS)))
        assert await asyncio.to_thread(wait_for, lambda: verifier.running == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert await asyncio.to_thread(wait_for, lambda: verifier.cancelled == 1)
        async with aclosing(client.stream([arguments(HANGS)] * 2)) as stream:
            waiting = asyncio.ensure_future(anext(stream))
            assert await asyncio.to_thread(wait_for, lambda: verifier.running == 2)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert await asyncio.to_thread(wait_for, lambda: verifier.running == 0)


def test_closing_a_client_ends_what_other_threads_wait_for(url: str, verifier: StaticVerifier) -> None:
    client, ended = BenchClient(url), threading.Event()

    def call() -> None:
        try:
            client.evaluate(**arguments(HANGS))
        except BaseException:
            ended.set()

    threading.Thread(target=call, daemon=True).start()
    assert wait_for(lambda: verifier.running == 1)
    client.close()
    assert ended.wait(5)
    assert wait_for(lambda: verifier.running == 0)
    client.close()
    with pytest.raises(ConfigError, match="closed"):
        client.evaluate(**arguments())


def test_closing_a_client_ends_streams_that_other_threads_read(url: str, verifier: StaticVerifier) -> None:
    # Whoever waited there wakes while the client ends: in each of many tries that must come to an end.
    for _ in range(30):
        client = BenchClient(url)
        stream = client.stream([arguments(HANGS)] * 3)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(next, stream)
            assert wait_for(lambda: verifier.running == 3)
            client.close()
            assert isinstance(waiting.exception(5), CancelledError)
        assert wait_for(lambda: not verifier.running)


def test_a_full_queue_is_waited_for_until_all_have_their_answer(verifier: StaticVerifier) -> None:
    verifier.capacity, verifier.delay_s = 1, 0.02
    with serving(Service(verifier, "cpu", queue_limit=2, ahead=0)) as url, BenchClient(url, at_once=8) as client:
        got = list(client.stream([arguments(forbidden(n)) for n in range(1, 13)], ordered=False))
    assert sorted(line_of(result) for _, result in got) == list(range(1, 13))
    assert verifier.most == 1


def test_what_the_service_refuses_is_an_error_in_its_words(url: str) -> None:
    with BenchClient(url) as client:
        with pytest.raises(ConfigError, match=r"n_trials: .*got 0"):
            client.evaluate(**arguments(n_trials=0))
        with pytest.raises(ConfigError, match=r"request 1: .*kernl: no such field"):
            list(client.stream([arguments(), arguments(kernl=1)]))
        with pytest.raises(ReferenceFault, match="the reference raised"):
            client.evaluate(**arguments(BLAMES))


def test_our_trouble_is_tried_again_and_in_the_end_no_verdict(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "TROUBLE_RETRY_S", 0)
    patience = Patience(broken_s=0.01, pause_s=0.01)
    with BenchClient(url, patience=patience) as client:
        assert client.evaluate(**arguments(RECOVERS))["status"] == "no_kernel"
        with pytest.raises(InfraError, match=r"503 .*the node is gone.*2 failures"):
            client.evaluate(**arguments(FAILS))
        wanted = [arguments(code, request_id=name) for name, code in (("a", FAILS), ("b", forbidden(1)), ("c", BLAMES))]
        answers = [
            (got["request_id"], got["status"], got["error_detail"]["category"]) for _, got in client.stream(wanted)
        ]
    assert answers == [
        ("a", "infra_error", "INFRASTRUCTURE ERROR"),
        ("b", "forbidden", "NOT ALLOWED"),
        ("c", "infra_error", "REFERENCE ERROR"),
    ]


def test_the_token_is_sent_and_never_shown(verifier: StaticVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Service(verifier, "cpu"), Access({"a": SECRET})) as url:
        with BenchClient(url, "another-token-entirely") as client, pytest.raises(ConfigError, match="401") as error:
            client.evaluate(**arguments())
        assert "another-token" not in str(error.value)
        monkeypatch.setenv(BENCH_TOKEN, SECRET)
        with BenchClient(url) as client:
            assert client.evaluate(**arguments())["status"] == "forbidden"


def test_where_nobody_listens_is_said_at_once() -> None:
    with BenchClient("http://127.0.0.1:9", patience=Patience(broken_s=0)) as client:
        assert not client.healthy()
        with pytest.raises(InfraError, match="ConnectError"):
            client.evaluate(**arguments())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        *((lambda url=url: BenchClient(url), f"'{url}' is no URL of a service") for url in (
            "", "no-url:1", "localhost:8100", "http://", "ftp://host", "http://host:port",
        )),
        (lambda: BenchClient("http://s", at_once=0), "at_once is 0 "),
        (lambda: BenchClient("http://s", answer_s=-1.0), "answer_s -1.0"),
        (lambda: Patience(busy_s=-1), "busy_s is -1"),
        (lambda: Patience(broken_s=float("nan")), "broken_s is nan"),
        (lambda: Patience(pause_s=0), "pause_s is 0"),
        (lambda: Patience(tries=0), "tries is 0"),
    ],
)  # fmt: skip
def test_what_no_request_could_be_sent_by_is_refused_at_once(made: Callable[[], object], said: str) -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigError, match=said):
        made()
    assert threading.active_count() == threads
