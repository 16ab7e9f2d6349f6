"""Looking up: exact products, approximate ones, words; leaks, languages, budgets, and why there are fewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic_pairs import disguised, pairs
from kb_ray.errors import ConfigError
from kb_ray.retrieve import exact
from kb_ray.retrieve.ann import AnnSearch, built
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.search import Limits, Search
from kb_ray.traces.store import LocalStore
from tests.unit.retrieve.material import lexical_build, lexical_index, rows_of, write_pairs

LIMITS = Limits(count=3, tokens=3000, leak_overlap=0.9)
FOUND = list(pairs(100, 1))


def hundred_tokens(example: Example) -> int:
    return 100


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """Words over the 100 pairs of FOUND."""
    folder = tmp_path_factory.mktemp("search")
    lexical_index(folder)
    return Search(Index(str(folder / "index")), hundred_tokens)


def units(count: int, dimension: int, seed: int) -> Any:
    found = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@given(st.integers(0, 200), st.integers(1, 40), st.integers(0, 10))
def test_the_highest_are_found_in_order_and_equal_ones_in_theirs(count: int, wanted: int, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 20, count).astype(np.float32)
    rows, found = exact.top(scores, wanted)
    assert rows.tolist() == sorted(range(count), key=lambda row: (-scores[row], row))[:wanted]
    assert found.tolist() == [scores[row] for row in rows]


def test_products_over_several_parts_are_those_over_one() -> None:
    vectors, wanted = units(50_000, 8, 1), units(1, 8, 2)[0]
    parts = [vectors[:3], vectors[3:3], vectors[3:40_000], vectors[40_000:]]
    assert np.allclose(exact.inner_products(parts, wanted), vectors @ wanted, atol=1e-6)


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_approximate_search_finds_a_vector_itself_first(tmp_path: Path, kind: Any) -> None:
    vectors = units(2000, 16, 3)
    path = tmp_path / "ann.faiss"
    path.write_bytes(built(vectors, kind))
    found = AnnSearch(path, 2000, 16)
    for row in range(0, 2000, 100):
        rows, scores = found.top(vectors[row], 5)
        assert rows[0] == row
        assert scores[0] == pytest.approx(1.0, abs=1e-5)
    for count, dimension in ((2000, 8), (1999, 16)):
        with pytest.raises(ConfigError, match="holds 2000 vectors of 16"):
            AnnSearch(path, count, dimension)
    path.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="no FAISS index"):
        AnnSearch(path, 2000, 16)


def test_planted_disguises_of_the_task_are_dropped_in_100_of_100_and_counted(tmp_path: Path) -> None:
    planted = [pair._replace(pytorch_code=disguised(pair.pytorch_code, seed)) for seed, pair in enumerate(FOUND)]
    spec = f"file:{write_pairs(tmp_path / 'p.jsonl', planted + list(pairs(200, 2)))}"
    store = LocalStore(str(tmp_path / "index"))
    lexical_build(store, rows_of(spec)).run()
    search = Search(Index(store.uri), hundred_tokens)
    dropped = 0
    for number, pair in enumerate(FOUND):
        shown, told = search.examples(pair.pytorch_code, LIMITS)
        dropped += f"file/p_{number}" not in [example.example_id for example in shown] and told.leaks >= 1
        assert len(shown) == 3
        assert max(found.overlap for found in told.examples) < 0.9
    assert dropped == 100


def test_an_example_of_the_same_task_id_is_the_task_whatever_its_program(search: Search) -> None:
    program = FOUND[7].pytorch_code.replace("torch", "jax")
    shown, told = search.examples(program, LIMITS, task_id="file/pairs_9")
    other, before = search.examples(program, LIMITS)
    assert told.leaks == before.leaks + 1
    assert "file/pairs_9" not in [example.example_id for example in shown]
    assert len(other) == len(shown) == 3


def test_what_is_told_is_what_is_shown(search: Search) -> None:
    shown, told = search.examples(next(iter(pairs(1, 50))).pytorch_code, LIMITS)
    assert [found.example_id for found in told.examples] == [example.example_id for example in shown]
    assert (told.index, told.wanted, told.note) == (search.index.info.identity, 3, None)
    assert told.leak_overlap == 0.9


def test_fewer_than_wanted_say_why(search: Search) -> None:
    program = next(iter(pairs(1, 51))).pytorch_code
    _, told = search.examples(program, Limits(count=3, tokens=250, leak_overlap=0.9))
    assert (len(told.examples), told.note) == (2, "2 of 3: no more fit into 250 tokens")
    _, told = search.examples(program, Limits(count=16, tokens=10**6, leak_overlap=0.01))
    assert len(told.examples) < 16
    assert (told.note or "").endswith(f"{told.leaks} rows being the task itself")


def test_cuda_examples_are_shown_only_when_asked_for(tmp_path: Path) -> None:
    cuda = [pair._replace(triton_code="__global__ void k() {}") for pair in FOUND[:50]]
    specs = [
        f"file:{write_pairs(tmp_path / 'c.jsonl', cuda, 'cuda_code')}",
        f"file:{write_pairs(tmp_path / 't.jsonl', FOUND[50:52])}",
    ]
    store = LocalStore(str(tmp_path / "index"))
    lexical_build(store, rows_of(*specs)).run()
    search = Search(Index(store.uri), hundred_tokens)
    program = next(iter(pairs(1, 52))).pytorch_code
    shown, told = search.examples(program, LIMITS)
    assert [example.language for example in shown] == ["triton", "triton"]
    assert "no more programs that are not CUDA" in (told.note or "")
    shown, _ = search.examples(program, Limits(count=3, tokens=3000, leak_overlap=0.9, cuda=True))
    assert "cuda" in [example.language for example in shown]


def test_a_program_that_shares_no_word_with_the_index_still_gets_examples(search: Search) -> None:
    shown, _ = search.examples("#", LIMITS)
    assert len(shown) == 3
