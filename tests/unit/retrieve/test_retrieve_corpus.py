"""What is read from each corpus, what is left out and why, and what cannot be read at all."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.errors import ConfigError
from kb_ray.retrieve import corpus
from kb_ray.retrieve.checking import unfit, with_entry_point
from kb_ray.retrieve.corpus import Wanted, read_corpus, wanted_specs
from kb_ray.retrieve.example import Example
from kb_ray.tasks import kernelbook
from tests.unit.exporting.stories import store_of, story, task
from tests.unit.retrieve.material import write_pairs

PAIR = next(iter(pairs(1, 0)))
CUDA = "#include <torch/extension.h>\n// an odd } here\n__global__ void k(float* x) { x[0] = 1.0f; }\n"


def read(spec: str, wanted: Wanted | None = None) -> tuple[list[Example], list[str]]:
    found = list(read_corpus(spec, wanted or Wanted()))
    return [f for f in found if isinstance(f, Example)], [f for f in found if isinstance(f, str)]


def jsonl(path: Path, *rows: dict[str, object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file:{path}"


def test_rows_of_a_file_become_examples_and_the_rest_says_why_not(tmp_path: Path) -> None:
    program, kernel = PAIR.pytorch_code, PAIR.triton_code
    spec = jsonl(
        tmp_path / "p.jsonl",
        {"pytorch_code": program, "triton_code": kernel},
        {"pytorch_code": "def broken(:", "triton_code": kernel},
        {"pytorch_code": program, "triton_code": "def broken(:"},
        {"pytorch_code": program, "triton_code": "x = 1"},
        {"pytorch_code": program, "triton_code": None},
        {"pytorch_code": "", "triton_code": kernel},
    )
    examples, reasons = read(spec)
    assert [e.example_id for e in examples] == ["file/p_0"]
    assert (examples[0].pytorch_code, examples[0].kernel_code) == (program, kernel)
    assert reasons == [
        "program is no valid Python", "kernel is no valid Python", "no Triton kernel in it", "kernel is missing",
        "program is missing",
    ]  # fmt: skip


def test_a_parquet_file_may_hold_both_kinds_of_kernel(tmp_path: Path) -> None:
    path = tmp_path / "both.parquet"
    row = {"pytorch_code": PAIR.pytorch_code, "triton_code": PAIR.triton_code, "cuda_code": CUDA}
    pq.write_table(pa.Table.from_pylist([row]), path)
    examples, _ = read(f"file:{path}")
    assert [(e.example_id, e.language) for e in examples] == [
        ("file/both_0/triton", "triton"), ("file/both_0/cuda", "cuda"),
    ]  # fmt: skip
    only, _ = read(f"file:{path}", Wanted(languages=frozenset({"triton"})))
    assert [e.language for e in only] == ["triton"]


def test_of_our_own_traces_the_best_correct_kernel_of_each_task_is_taken(tmp_path: Path) -> None:
    other = task("tanh")
    found = [story("wrong", "slow"), story("twice", "fast", sample=1), story("wrong", "broken", of=other)]
    store = store_of(tmp_path, *found)
    examples, _ = read(f"traces:{store.uri}")
    assert [(e.example_id, e.speedup, e.verdict) for e in examples] == [(found[0].task.task_id, 3.0, "ok")]


def data_set(folder: Path, split: str, *rows: dict[str, object]) -> str:
    """A folder that `datasets` loads as it loads one of the hub."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "data" / f"{split}-00000-of-00001.parquet")
    return str(folder)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.mark.usefixtures("own_cache")
def test_the_archive_gives_its_correct_kernels_of_the_wanted_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"PyTorch_Code_Module": PAIR.pytorch_code, "CUDA_Code": CUDA, "CUDA_Speedup_Native": 1.5, "Task_ID": 19}
    for level in (1, 2):
        folder = data_set(
            tmp_path / "archive", f"level_{level}", row | {"Correct": True}, row | {"Correct": False},
            row | {"Correct": True, "CUDA_Code": "int x;", "CUDA_Speedup_Native": float("nan")},
        )  # fmt: skip
    monkeypatch.setattr(corpus, "SAKANA", folder)
    examples, reasons = read("sakana", Wanted(sakana_levels=(2,)))
    assert [(e.example_id, e.language, e.speedup) for e in examples] == [("sakana/2/19_0", "cuda", 1.5)]
    assert reasons == ["kernel is not correct", "no CUDA kernel in it"]
    examples, _ = read("sakana", Wanted(sakana_levels=(1, 2), include_incorrect=True))
    assert [e.example_id for e in examples] == ["sakana/1/19_0", "sakana/1/19_1", "sakana/2/19_0", "sakana/2/19_1"]


@pytest.mark.usefixtures("own_cache")
def test_kernelbook_gives_its_pairs_under_their_place_in_the_published_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"python_code": PAIR.pytorch_code, "triton_code": PAIR.triton_code, "entry_point": "Net"}
    folder = data_set(tmp_path / "book", "train", row, row | {"triton_code": "x = 1"}, row)
    monkeypatch.setattr(kernelbook, "DATASET", folder)
    examples, reasons = read("kernelbook")
    assert [(e.example_id, e.entry_point, e.init_convention) for e in examples] == [
        ("kernelbook/0", "Net", "args_kwargs"), ("kernelbook/2", "Net", "args_kwargs"),
    ]  # fmt: skip
    assert reasons == ["no Triton kernel in it"]
    monkeypatch.setattr(kernelbook, "DATASET", data_set(tmp_path / "other", "train", {"python_code": "x"}))
    with pytest.raises(ConfigError, match="no column triton_code; its columns are: python_code"):
        read("kernelbook")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"pytorch_code": "x"}], "no column triton_code or cuda_code; its columns are: pytorch_code"),
        ([{"triton_code": "x"}], "no column reference_code or pytorch_code"),
        ([], "holds no row"),
    ],
)
def test_a_file_that_lacks_a_column_or_rows_is_one_line(
    tmp_path: Path, rows: list[dict[str, object]], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        read(jsonl(tmp_path / "p.jsonl", *rows))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["", "kernelbok", "file:", "traces:", "file:/nowhere.jsonl", "traces:/nowhere"])
def test_a_corpus_that_is_none_is_one_line(spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(spec)
    assert "\n" not in str(caught.value)


def test_a_wish_for_one_language_leaves_out_corpora_without_it() -> None:
    assert wanted_specs([], frozenset({"triton"})) == ["kernelbook"]
    assert wanted_specs([], frozenset({"cuda"})) == ["sakana"]
    assert wanted_specs([], frozenset({"triton", "cuda"})) == ["kernelbook", "sakana"]


def test_cuda_code_is_checked_for_a_kernel_and_brackets_outside_comments_and_strings() -> None:
    assert unfit(CUDA, "cuda") is None
    assert unfit(CUDA.replace("__global__", ""), "cuda") == "no CUDA kernel in it"
    assert unfit(CUDA + "}", "cuda") == "brackets of the CUDA code do not match"
    assert unfit(CUDA + 'auto s = "}";', "cuda") is None


def test_a_module_under_a_name_of_its_own_gets_the_contracts_name_too(tmp_path: Path) -> None:
    own = PAIR.triton_code.replace("def triton_kernel_wrapper", "class ReluNew:\n    pass\n\n\ndef call")
    assert with_entry_point(own).endswith("\n\n\nModelNew = ReluNew\n")
    assert with_entry_point(PAIR.triton_code) == PAIR.triton_code
    assert with_entry_point("def broken(:") == "def broken(:"
    examples, _ = read(f"file:{write_pairs(tmp_path / 'x.jsonl', [PAIR._replace(triton_code=own)])}")
    assert "ModelNew = ReluNew" in examples[0].kernel_code
