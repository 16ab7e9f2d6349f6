"""Indexes on disk: what a build leaves, how a stopped one goes on, and how damage is told."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.errors import ConfigError, StoreError
from kb_ray.retrieve.building import check_output
from kb_ray.retrieve.index import Index, index_identity
from kb_ray.retrieve.layout import INFO_KEY, IndexInfo
from kb_ray.retrieve.program import core
from kb_ray.traces.store import LocalStore
from tests.unit.retrieve.material import (
    HashEmbedders,
    lexical_build,
    lexical_index,
    rows_of,
    vector,
    vector_build,
    write_pairs,
)

FOUND = list(pairs(100, 4))


@pytest.fixture
def spec(tmp_path: Path) -> str:
    return f"file:{write_pairs(tmp_path / 'pairs.jsonl', FOUND)}"


class StopsAfter(LocalStore):
    """A folder that fails at its n-th write, as a process does that is killed there."""

    def __init__(self, path: str, writes: int) -> None:
        super().__init__(path)
        self.left = writes

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.left == 0:
            raise StoreError("killed")
        self.left -= 1
        return super().put_if_absent(key, data)


def test_an_index_gives_back_every_pair_in_order_and_its_vector(tmp_path: Path, spec: str) -> None:
    store = LocalStore(str(tmp_path / "index"))
    info = vector_build(store, rows_of(spec), part_rows=30).run()
    index = Index(store.uri)
    assert (len(index), [part.rows for part in info.parts]) == (100, [30, 30, 30, 10])
    for row in (0, 29, 30, 64, 99):
        assert index.example(row).pytorch_code == FOUND[row].pytorch_code
        assert np.array_equal(index.vectors[row // 30][row % 30], vector(core(FOUND[row].pytorch_code).text))
    assert index.texts() == [core(pair.pytorch_code).text for pair in FOUND]
    assert (info.corpora[0].read, info.corpora[0].kept, info.corpora[0].dropped) == (100, 100, {})


@pytest.mark.parametrize("writes", range(9))
def test_a_build_stopped_at_any_write_goes_on_with_the_parts_that_are_there(
    tmp_path: Path, spec: str, writes: int
) -> None:
    """Four parts are eight writes, the metadata is the ninth."""
    whole = vector_build(LocalStore(str(tmp_path / "whole")), rows_of(spec), part_rows=25).run()
    with pytest.raises(StoreError, match="killed"):
        vector_build(StopsAfter(str(tmp_path / "index"), writes), rows_of(spec), part_rows=25).run()
    store = LocalStore(str(tmp_path / "index"))
    assert store.get(INFO_KEY) is None
    embedders = HashEmbedders()
    info = vector_build(store, rows_of(spec), part_rows=25, embedders=embedders).run()
    assert info.identity == whole.identity
    assert info.corpora == whole.corpora
    assert embedders.embedded == 100 - 25 * (writes // 2)


def test_parts_of_another_request_are_not_taken_and_do_not_stay(tmp_path: Path, spec: str) -> None:
    store = LocalStore(str(tmp_path / "index"))
    with pytest.raises(StoreError):
        vector_build(StopsAfter(store.uri, 4), rows_of(spec), part_rows=25).run()
    embedders = HashEmbedders()
    info = vector_build(store, rows_of(spec), part_rows=40, embedders=embedders).run()
    assert embedders.embedded == 100
    assert len(store.list("parts/")) == 2 * len(info.parts)


def test_a_pair_that_comes_twice_is_kept_once_and_counted(tmp_path: Path) -> None:
    twice = (
        f"file:{write_pairs(tmp_path / 'a.jsonl', FOUND[:5])}",
        f"file:{write_pairs(tmp_path / 'b.jsonl', FOUND[:7])}",
    )
    info = lexical_build(LocalStore(str(tmp_path / "index")), rows_of(*twice)).run()
    assert [(c.kept, c.dropped) for c in info.corpora] == [(5, {}), (2, {"read before": 5})]
    assert info.count == 7


def test_nothing_usable_is_one_line_with_the_reasons_and_leaves_no_index(tmp_path: Path) -> None:
    broken = [pair._replace(triton_code="def broken(:") for pair in FOUND[:3]]
    spec = f"file:{write_pairs(tmp_path / 'p.jsonl', broken)}"
    store = LocalStore(str(tmp_path / "index"))
    with pytest.raises(ConfigError, match=r"no usable example: .*3 rows read, 0 kept \(3 kernel is no valid Python\)"):
        lexical_build(store, rows_of(spec)).run()
    assert store.list("") == []


def test_the_identity_is_that_of_the_content_and_not_of_the_place(tmp_path: Path) -> None:
    first, second = lexical_index(tmp_path / "a"), lexical_index(tmp_path / "b")
    assert first.identity == second.identity == index_identity(str(tmp_path / "a" / "index"))
    assert lexical_index(tmp_path / "c", seed=2).identity != first.identity


def test_an_output_with_another_index_is_refused_and_the_same_one_taken(tmp_path: Path) -> None:
    info = lexical_index(tmp_path)
    store = LocalStore(str(tmp_path / "index"))
    assert check_output(store, info.request) == info
    with pytest.raises(
        ConfigError, match="holds an index of 100 examples built with lexical search and another corpus"
    ):
        check_output(store, {"corpus": "other"})
    assert check_output(LocalStore(str(tmp_path / "empty")), {}) is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGE: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "cut vectors": (cut, "*.npy", "bytes, not"),
    "cut examples": (cut, "*.parquet", "bytes, not"),
    "changed vectors": (flip, "*.npy", "is not what was written"),
    "changed examples": (flip, "*.parquet", "is not what was written"),
    "missing vectors": (Path.unlink, "*.npy", "is missing"),
}


@pytest.mark.parametrize(("damage", "pattern", "told"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_one_line_that_names_the_file(
    tmp_path: Path, spec: str, damage: Callable[[Path], Any], pattern: str, told: str
) -> None:
    store = LocalStore(str(tmp_path / "index"))
    vector_build(store, rows_of(spec), part_rows=60).run()
    file = sorted((tmp_path / "index" / "parts").glob(pattern))[1]
    damage(file)
    with pytest.raises(ConfigError, match=told) as caught:
        Index(store.uri)
    assert file.name in str(caught.value)
    assert "\n" not in str(caught.value)


def rewritten(store: LocalStore, key: str, data: bytes) -> None:
    """`data` in place of a file, with metadata that agrees: what somebody else might have built."""
    info = IndexInfo.model_validate_json(store.get(INFO_KEY) or b"")
    part = info.parts[0]
    assert part.vectors is not None
    file = part.vectors.of(key, data)
    changed = info.model_copy(update={"parts": (part.model_copy(update={"vectors": file}), *info.parts[1:])})
    store.replace(key, data)
    store.replace(INFO_KEY, changed.model_dump_json().encode())


def test_vectors_of_another_shape_and_pickled_ones_are_refused(tmp_path: Path, spec: str) -> None:
    store = LocalStore(str(tmp_path / "index"))
    key = vector_build(store, rows_of(spec)).run().parts[0].vectors
    assert key is not None
    for array, told in ((np.zeros((100, 3), np.float32), "not float32"), (np.array([{}, {}]), "holds no vectors")):
        out = io.BytesIO()
        np.save(out, array, allow_pickle=True)
        rewritten(store, key.key, out.getvalue())
        with pytest.raises(ConfigError, match=told):
            Index(store.uri)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"format": 99}',
        b'{"format": 1, "count": 3}',
        b"[" * 100_000,
        b'{"format": 2, "request": ' + b'{"a":' * 50_000,
    ],
    ids=lambda content: content[:40].decode(),
)
def test_metadata_that_is_none_is_one_line(tmp_path: Path, content: bytes) -> None:
    lexical_index(tmp_path)
    (tmp_path / "index" / INFO_KEY).write_bytes(content)
    with pytest.raises(ConfigError, match=r"index .*: index\.json (is damaged|has format)") as caught:
        Index(str(tmp_path / "index"))
    assert "\n" not in str(caught.value)


def test_an_unfinished_index_is_told_from_a_finished_one(tmp_path: Path) -> None:
    lexical_index(tmp_path)
    (tmp_path / "index" / INFO_KEY).unlink()
    with pytest.raises(ConfigError, match="its build has not finished"):
        Index(str(tmp_path / "index"))


def test_metadata_hold_no_more_than_json_and_no_file_is_a_pickle(tmp_path: Path, spec: str) -> None:
    store = LocalStore(str(tmp_path / "index"))
    vector_build(store, rows_of(spec)).run()
    json.loads(store.get(INFO_KEY) or b"")
    endings = {key.rpartition(".")[2] for key in store.list("")}
    assert endings == {"json", "parquet", "npy"}
