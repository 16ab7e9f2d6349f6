"""What every trace store must do. Subclasses give a `store` fixture, empty for each test."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from kb_ray.errors import StoreError
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import Store
from tests.unit.traces.examples import make_episode


class StoreContract:
    def test_a_key_is_created_once_and_keeps_its_first_content(self, store: Store) -> None:
        assert store.put_if_absent("parts/a", b"first") is True
        assert store.put_if_absent("parts/a", b"second") is False
        assert store.get("parts/a") == b"first"

    def test_of_many_writers_of_one_key_exactly_one_creates_it(self, store: Store) -> None:
        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(lambda i: store.put_if_absent("run.json", b"%d" % i), range(8)))
        assert created.count(True) == 1
        assert store.get("run.json") == b"%d" % created.index(True)

    def test_replace_writes_over(self, store: Store) -> None:
        store.replace("_manifest.json", b"1")
        store.replace("_manifest.json", b"22")
        assert store.get("_manifest.json") == b"22"

    def test_list_gives_the_keys_under_a_prefix_sorted(self, store: Store) -> None:
        for key in ("parts/b", "parts/a", "final/c", "run.json"):
            store.put_if_absent(key, b"x")
        assert store.list("parts/") == ["parts/a", "parts/b"]
        assert store.list("") == ["final/c", "parts/a", "parts/b", "run.json"]

    def test_what_is_not_there_is_none_or_empty(self, store: Store) -> None:
        assert store.get("parts/none") is None
        assert store.list("parts/") == []
        store.delete("parts/none")
        with pytest.raises(StoreError):
            store.open("parts/none")

    def test_a_deleted_key_can_be_created_again(self, store: Store) -> None:
        store.put_if_absent("parts/a", b"1")
        store.delete("parts/a")
        assert store.put_if_absent("parts/a", b"2") is True

    def test_the_write_check_leaves_nothing_behind(self, store: Store) -> None:
        store.check_writable()
        assert store.list("") == []

    def test_an_opened_key_reads_at_any_position(self, store: Store) -> None:
        data = os.urandom(700_000)
        store.put_if_absent("parts/a", data)
        with store.open("parts/a") as file:
            assert file.seek(-10, io.SEEK_END) == len(data) - 10
            assert file.read(4) == data[-10:-6]
            assert file.tell() == len(data) - 6
            file.seek(1000)
            assert file.read(1000) == data[1000:2000]
            assert file.read() == data[2000:]
            assert file.read(5) == b""

    def test_parquet_columns_can_be_read_from_an_opened_key(self, store: Store) -> None:
        many = [make_episode(sample=i, text=os.urandom(300_000).hex()) for i in range(3)]
        store.put_if_absent("parts/a", table_bytes(many))
        with store.open("parts/a") as file:
            assert pq.ParquetFile(file).read(columns=["sample"]).to_pylist() == [{"sample": i} for i in range(3)]
