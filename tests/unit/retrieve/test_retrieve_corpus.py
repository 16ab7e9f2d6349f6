"""What is read from each corpus, what is left out and why, and what cannot be read at all."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.errors import ConfigError
from kb_ray.retrieve.checking import unfit, with_entry_point
from kb_ray.retrieve.corpus import Wanted, read_corpus, wanted_specs
from kb_ray.retrieve.example import Example
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
