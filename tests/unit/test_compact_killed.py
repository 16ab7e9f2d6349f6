"""Compaction by Ray Data, killed at any moment: every episode stays, and the next one ends with each once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kb_ray.compact import compact as compact_store
from kb_ray.compact import write_with_ray
from kb_ray.errors import StoreError
from kb_ray.traces.layout import list_parts, part_key, read_manifest
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import LocalStore, Store, open_store
from tests.fixtures_s3 import S3Server
from tests.unit.traces.examples import make_episode

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 120
HERE = """
import sys
from kb_ray.compact import compact
from kb_ray.traces.store import open_store
compact(open_store(sys.argv[1]), rows_per_file=5, delete_parts=True)
"""


def fill(store: Store, samples: int = SAMPLES) -> None:
    """Many small parts; every tenth sample has a second attempt."""
    for start in range(0, samples, 6):
        rows = [make_episode(sample=s, text=os.urandom(2048).hex()) for s in range(start, start + 6)]
        put(store, table_bytes(rows))
    put(store, table_bytes([make_episode(sample=s, attempt=2) for s in range(0, samples, 10)]))


def put(store: Store, data: bytes) -> None:
    store.put_if_absent(part_key(data), data)


def held(store: Store) -> list[tuple[int, int]]:
    return sorted((episode.sample, episode.attempt) for episode in read_episodes(survey(store)))


EXPECTED = [(sample, 2 if sample % 10 == 0 else 1) for sample in range(SAMPLES)]


def kill_once_there_are(files: int, store: Store, command: list[str], env: dict[str, str]) -> None:
    """Starts the command and kills it with SIGKILL when so many final files are there."""
    process = subprocess.Popen(command, env={**os.environ, **env}, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(store.list("final/")) < files and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert len(store.list("final/")) >= files


@pytest.fixture(params=["local", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, dict[str, str]]]:
    """(store, environment of a process that uses it), in a folder and on a real S3 server."""
    if request.param == "local":
        yield LocalStore(str(tmp_path / "out")), {}
        return
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    yield open_store(f"s3://{server.bucket}/{uuid.uuid4().hex}"), server.env


def test_killed_half_way_through_ray_data_then_done_again(
    place: tuple[Store, dict[str, str]], ray_cluster: str
) -> None:
    store, env = place
    fill(store)
    command = [sys.executable, "-m", "kb_ray.compact", store.uri, "--rows-per-file", "7", "--delete-parts"]
    kill_once_there_are(2, store, command, {**env, "RAY_ADDRESS": ray_cluster})
    assert read_manifest(store) is None
    assert held(store) == EXPECTED
    put(store, table_bytes([make_episode(sample=SAMPLES)]))
    manifest = compact_store(store, rows_per_file=7, delete_parts=True, write=write_with_ray)
    assert [file.rows for file in manifest.files] == [7] * 19, "120 samples, 12 of them twice, and one more"
    assert store.list("final/") == sorted(file.key for file in manifest.files)
    assert list_parts(store) == []
    assert held(store) == [*EXPECTED, (SAMPLES, 1)]


def test_killed_again_and_again_and_each_time_the_store_is_whole(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    store = LocalStore(str(tmp_path / "out"))
    fill(store)
    for _ in range(3):
        kill_once_there_are(draw.randint(1, 20), store, [sys.executable, "-c", HERE, store.uri], {})
        assert held(store) == EXPECTED
    done = subprocess.run([sys.executable, "-c", HERE, store.uri], cwd=ROOT)
    assert done.returncode == 0
    assert held(store) == EXPECTED
    assert list_parts(store) == []
    # What a killed one was still writing has no name yet, and goes with time.
    tables = [pq.read_table(tmp_path / "out" / key, columns=["episode_id"]) for key in store.list("final/")]
    ids = [row["episode_id"] for table in tables for row in table.to_pylist()]
    assert len(ids) == len(set(ids)) == SAMPLES + SAMPLES // 10


def test_ray_and_a_plain_loop_write_the_same_files(tmp_path: Path, ray_cluster: str) -> None:
    store = LocalStore(str(tmp_path / "out"))
    fill(store, 24)
    by_ray = compact_store(store, rows_per_file=5, write=write_with_ray)
    store.delete("_manifest.json")
    assert compact_store(store, rows_per_file=5).files == by_ray.files


def test_what_fails_inside_ray_is_told_as_the_stores_own_error(tmp_path: Path, ray_cluster: str) -> None:
    store = LocalStore(str(tmp_path / "out"))
    fill(store, 12)
    found = survey(store)
    gone = sorted(found.rows)[0]
    store.delete(gone)
    with pytest.raises(StoreError, match=gone):
        write_with_ray(store, [[(gone, (0,))], [(gone, (1,))]])
