"""Indexes for tests, made from synthetic pairs without Ray: words, or vectors that stand for themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic_pairs import Pair, pairs
from kb_ray.retrieve.building import Build
from kb_ray.retrieve.corpus import Found, Wanted, read_corpus
from kb_ray.retrieve.embedding import PROBE
from kb_ray.retrieve.layout import Embedding, IndexInfo
from kb_ray.retrieve.program import TEXT_VERSION
from kb_ray.traces.store import Store, open_store

DIMENSION = 16


class HashEmbedders:
    """Vectors drawn by the hash of a program's text: equal texts, equal vectors. Counts what it was asked."""

    places = 1

    def __init__(self) -> None:
        self.embedded = 0

    def submit(self, texts: Sequence[str]) -> Any:
        self.embedded += len(texts)
        return np.stack([vector(text) for text in texts])

    def result(self, ticket: Any) -> Any:
        return ticket


def vector(text: str) -> Any:
    seed = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
    found = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return found / np.linalg.norm(found)


def write_pairs(path: Path, found: Sequence[Pair], column: str = "triton_code") -> Path:
    rows = [{"pytorch_code": pair.pytorch_code, column: pair.triton_code} for pair in found]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(*specs: str) -> dict[str, Iterator[Found]]:
    return {spec: read_corpus(spec, Wanted()) for spec in specs}


def lexical_build(store: Store, corpora: dict[str, Iterator[Found]], **more: Any) -> Build:
    return Build(store, corpora, Embedding(kind="lexical", text_version=TEXT_VERSION), {"corpus": "test"}, **more)


def vector_build(store: Store, corpora: dict[str, Iterator[Found]], **more: Any) -> Build:
    embedding = Embedding(
        kind="model", model="hashes", dimension=DIMENSION, text_version=TEXT_VERSION,
        probe=tuple(vector(PROBE).tolist()),
    )  # fmt: skip
    return Build(store, corpora, embedding, {"corpus": "test"}, **{"embedders": HashEmbedders(), **more})


def lexical_index(folder: Path, count: int = 100, seed: int = 1) -> IndexInfo:
    """An index of words in `folder`/index over `count` pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_pairs(folder / "pairs.jsonl", list(pairs(count, seed)))
    return lexical_build(open_store(str(folder / "index")), rows_of(f"file:{path}"), part_rows=32).run()
