"""Looking further: never fewer than there are, whatever lies nearer, in every kind of search; and never the task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kb_ray.retrieve import nearest
from kb_ray.retrieve.embedding import PROBE
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.program import core
from kb_ray.retrieve.search import LEAK_SIMILARITY, Limits, Search
from kb_ray.traces.store import LocalStore
from tests.unit.retrieve.disguises import DISGUISES, OTHERS, PLAIN
from tests.unit.retrieve.material import DIMENSION, HashEmbedders, lexical_build, rows_of, vector, vector_build

OPERATIONS = ("relu", "tanh", "sigmoid", "exp", "abs", "neg", "sin", "cos", "log", "sqrt", "floor", "ceil")
KERNEL = "import triton\n\n\n@triton.jit\ndef k(x):\n    a = {number}\n"
CUDA = "__global__ void k(float* x) {{ x[0] = {number}; }}"
LIMITS = Limits(count=3, tokens=10**6, leak_overlap=0.9)


def program(operation: str, factor: float = 1.0, steps: str = "") -> str:
    begin = f"import torch\n\n\ndef reference_impl(x):\n    y = torch.{operation}(x)\n"
    return f"{begin}{steps}    return y.sum(dim=1) * {factor}\n"


def close_to(text: str) -> Any:
    """Vectors in which programs of relu lie together, and all others elsewhere."""
    if text == PROBE:
        return vector(PROBE)
    found = vector("relu" if "relu(" in text else "other") + 0.4 * vector(text)
    return (found / np.linalg.norm(found)).astype(np.float32)


class Close(HashEmbedders):
    """Both sides of `close_to`: what a build submits to and what a search embeds with."""

    dimension = DIMENSION

    def submit(self, texts: Sequence[str]) -> Any:
        return np.stack([close_to(text) for text in texts])

    def embed(self, texts: Sequence[str]) -> Any:
        return self.submit(texts)


def search(folder: Path, rows: list[dict[str, str]], **more: Any) -> Search:
    """An index of the rows, of words unless an `embedders` is given."""
    path = folder / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = LocalStore(str(folder / "index"))
    (vector_build if more else lexical_build)(store, rows_of(f"file:{path}"), **more).run()
    return Search(Index(store.uri), lambda example: len(example.kernel_code))


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "SentenceEmbedder", lambda model, device: {"cpu": Close()}[device])


@pytest.mark.usefixtures("close")
@pytest.mark.parametrize("ann", [None, "hnsw", "ivf"])
def test_as_many_are_found_behind_800_near_ones_of_another_language(tmp_path: Path, ann: Any) -> None:
    rows = [
        {"pytorch_code": program("relu", n / 7, "    y = y + 1\n"), "cuda_code": CUDA.format(number=n)}
        for n in range(800)
    ]
    rows += [{"pytorch_code": program(op), "triton_code": KERNEL.format(number=n)} for n, op in enumerate(OPERATIONS)]
    found = search(tmp_path, rows, embedders=Close(), ann=ann)
    shown, told = found.examples(program("relu", 9.0, "    y = y.mean(0)\n"), LIMITS)
    assert [example.language for example in shown] == ["triton"] * 3
    assert told.note is None
    assert told.leak_similarity == LEAK_SIMILARITY
    shown, told = found.examples(program("relu", 9.0, "    y = y.mean(0)\n"), Limits(20, 10**6, 0.9))
    assert (len(shown), told.note) == (
        12, "12 of 20: the index has no more programs that are not CUDA, 0 rows being the task itself",
    )  # fmt: skip
    shown, told = found.examples(program("relu", 9.0, "    y = y.mean(0)\n"), Limits(13, 10**6, 0.9, cuda=True))
    assert (len(shown), told.note) == (13, None)


@pytest.mark.usefixtures("close")
@pytest.mark.parametrize("ann", ["hnsw", "ivf"])
def test_what_an_approximate_index_does_not_reach_is_looked_for_exactly(tmp_path: Path, ann: Any) -> None:
    rows = [
        {"pytorch_code": program("relu", 1.0 + n, "    y = y + 1\n"), "triton_code": KERNEL.format(number=n)}
        for n in range(300)
    ]
    rows += [{"pytorch_code": program(op), "triton_code": KERNEL.format(number=n)} for n, op in enumerate(OPERATIONS)]
    shown, told = search(tmp_path, rows, embedders=Close(), ann=ann).examples(
        program("relu", 1.0, "    y = y + 1\n"), Limits(count=12, tokens=10**6, leak_overlap=0.9)
    )
    assert (len(shown), told.leaks, told.note) == (12, 300, None)


def test_600_copies_and_600_near_copies_of_the_task_hide_nothing(tmp_path: Path) -> None:
    rows = [{"pytorch_code": program("relu") + f"\n# {n}", "triton_code": KERNEL.format(number=n)} for n in range(600)]
    rows += [{"pytorch_code": program("relu", 2.0 + n), "triton_code": KERNEL.format(number=n)} for n in range(600)]
    rows += [
        {"pytorch_code": program(op), "triton_code": KERNEL.format(number=n)} for n, op in enumerate(OPERATIONS[1:4])
    ]
    shown, told = search(tmp_path, rows).examples(program("relu"), LIMITS)
    assert len({example.text for example in shown}) == 3
    assert (told.leaks, told.note) == (1200, None)


def test_many_kernels_of_few_programs_and_twins_leave_room_for_other_programs(tmp_path: Path) -> None:
    rows = [
        {"pytorch_code": program(op, 1.0 + n % 50, "    y = y + 1\n"), "triton_code": KERNEL.format(number=n)}
        for op in OPERATIONS[:2] for n in range(200)
    ]  # fmt: skip
    rows += [
        {
            "pytorch_code": "import torch\n\n\ndef reference_impl(q):\n    return torch.fft.fft(q) @ q\n",
            "triton_code": KERNEL.format(number=0),
        }
    ]
    shown, told = search(tmp_path, rows).examples(program("gelu", 1.0, "    y = y + 1\n"), LIMITS)
    assert told.note is None
    assert sorted(next(op for op in (*OPERATIONS, "fft") if f".{op}(" in e.pytorch_code) for e in shown) == [
        "fft",
        "relu",
        "tanh",
    ]


def test_a_budget_that_cannot_hold_them_says_so_and_how_far_it_looked(tmp_path: Path) -> None:
    rows = [
        {"pytorch_code": program(OPERATIONS[n % 12], 1.0 + n), "triton_code": KERNEL.format(number="1" * 400 + str(n))}
        for n in range(700)
    ]  # fmt: skip
    found = search(tmp_path, rows)
    shown, told = found.examples(program("gelu"), Limits(count=3, tokens=1000, leak_overlap=0.9))
    assert len(shown) == 2
    assert (told.note or "").startswith("2 of 3: no more of the ")
    assert (told.note or "").endswith(" nearest fit into 1000 tokens")
    assert found.examples(program("gelu"), Limits(3, 0, 0.9))[1].note == "0 of 3: no more fit into 0 tokens"


def rows_as_examples(**found: tuple[str, str]) -> Iterator[Example]:
    from kb_ray.retrieve.computed import operations

    for example_id, (language, code) in found.items():
        own = core(code)
        yield Example(
            example_id=example_id, corpus="x", language="cuda" if language == "cuda" else "triton", digest=own.digest,
            text=own.text, operations=operations(code), pytorch_code=code, kernel_code=f"kernel of {example_id}",
        )  # fmt: skip


def test_the_archives_kernels_for_a_task_are_the_task_by_their_id(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "index"))
    found = {"sakana/1/19_0": ("cuda", OTHERS["another function"]), "sakana/1/2_0": ("cuda", OTHERS["itself added"])}
    lexical_build(store, {"x": rows_as_examples(**found)}).run()
    look = Search(Index(store.uri), lambda example: 1)
    shown, told = look.examples(PLAIN, Limits(2, 100, 0.9, cuda=True), "kernelbench/1/19_ReLU")
    assert ([example.example_id for example in shown], told.leaks) == (["sakana/1/2_0"], 1)
    assert len(look.examples(PLAIN, Limits(2, 100, 0.9, cuda=True), "kernelbench/2/19_Other")[0]) == 2


def test_no_disguise_of_the_task_is_ever_shown(tmp_path: Path) -> None:
    rows = [{"pytorch_code": code, "triton_code": KERNEL.format(number=n)} for n, code in enumerate(DISGUISES.values())]
    others = [{"pytorch_code": code, "triton_code": KERNEL.format(number=n)} for n, code in enumerate(OTHERS.values())]
    shown, told = search(tmp_path, rows + others).examples(PLAIN, Limits(len(OTHERS), 10**6, 0.9))
    assert {example.pytorch_code for example in shown} == set(OTHERS.values())
    assert told.leaks == len(DISGUISES)


def test_a_triton_kernel_is_not_hidden_by_a_faster_one_in_cuda(tmp_path: Path) -> None:
    code = program("relu")
    rows = [
        {"pytorch_code": code, "cuda_code": CUDA.format(number=1)},
        {"pytorch_code": code, "triton_code": KERNEL.format(number=1)},
    ]
    shown, _ = search(tmp_path, rows).examples(program("gelu"), Limits(1, 10**6, 0.9, cuda=True))
    assert [example.language for example in shown] == ["triton"]
