"""Exactly once on S3: answers lost after the commit, the server killed under the sink, the writer killed -9."""

from __future__ import annotations

import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from kb_ray.compact import compact
from kb_ray.traces.layout import list_parts
from kb_ray.traces.resume import finished
from kb_ray.traces.sink import TraceSink
from kb_ray.traces.store import Store, open_store
from kb_ray.traces.views import episodes
from tests.fixtures_s3 import S3Server
from tests.s3.proxy import AnswerEatingProxy
from tests.unit.traces.examples import make_episode
from tests.unit.traces.killing import kill_until_done, samples_in_parts


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}")


def test_a_put_whose_answer_is_lost_counts_as_landed(s3_server: S3Server, store: Store) -> None:
    proxy = AnswerEatingProxy(s3_server.endpoint, drop=1)
    through_proxy = open_store(store.uri, endpoint_url=proxy.endpoint)
    assert through_proxy.put_if_absent("parts/a", b"x") is False
    proxy.close()
    assert proxy.dropped == 1
    assert store.get("parts/a") == b"x"


# Once: the client's own retry meets the object. Six times: it gives up, and the sink's next try meets it.
@pytest.mark.parametrize("drop", [1, 6])
def test_lost_answers_make_no_second_part(s3_server: S3Server, store: Store, drop: int) -> None:
    proxy = AnswerEatingProxy(s3_server.endpoint, drop)
    sink = TraceSink(open_store(store.uri, endpoint_url=proxy.endpoint))
    for sample in range(3):
        sink.add(make_episode(sample=sample))
    sink.close()
    proxy.close()
    assert proxy.dropped == drop
    assert (sink.parts, sink.written) == (1, 3)
    assert samples_in_parts(store) == dict.fromkeys(range(3), 1)


def test_a_server_killed_and_restarted_under_the_sink_loses_and_repeats_nothing(
    s3_server: S3Server, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    sink = TraceSink(store, save_interval=2)
    with caplog.at_level(logging.WARNING, "kb_ray"):
        for sample in range(60):
            sink.add(make_episode(sample=sample))
            time.sleep(0.02)
            if sample in (15, 35):
                s3_server.kill()
            if sample in (25, 45):
                s3_server.start()
        sink.close(timeout=60)
    assert samples_in_parts(store) == dict.fromkeys(range(60), 1)
    assert sink.written == 60
    # One line when it goes and one when it is back, however many writes failed between.
    assert len(caplog.records) <= 4


def test_kill_minus_nine_loses_nothing_saved_and_repeats_nothing(s3_server: S3Server, store: Store) -> None:
    saved = kill_until_done(store.uri, total=80, flush_every=4, kills=3, env=s3_server.env)
    assert saved == sorted(saved)
    assert saved[-1] < 80
    assert samples_in_parts(store) == dict.fromkeys(range(80), 1)


def test_a_listing_is_whole_across_its_pages(store: Store) -> None:
    # One answer holds at most 1,000 keys.
    keys = [f"parts/{i:04d}" for i in range(1005)]
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(lambda key: store.put_if_absent(key, b"x"), keys))
    assert store.list("parts/") == keys


def test_resume_and_compaction_work_on_the_server(store: Store) -> None:
    sink = TraceSink(store, save_interval=2)
    for sample in range(80):
        sink.add(make_episode(sample=sample))
    sink.close()
    assert len(list_parts(store)) == 40
    assert {sample for _, sample in finished(store)} == set(range(80))
    compact(store, rows_per_file=30, delete_parts=True)
    assert list_parts(store) == []
    assert len(store.list("final/")) == 3
    assert [episode.sample for episode in episodes(store)] == list(range(80))
