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
from kb_ray.retrieve.index import Index
from kb_ray.tasks import kernelbook
from kb_ray.traces.store import LocalStore
from tests.unit.exporting.stories import store_of, story, task
from tests.unit.retrieve.material import lexical_build, rows_of, write_pairs

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


def test_values_of_the_wrong_kind_cost_their_row_and_marks_at_the_beginning_go(tmp_path: Path) -> None:
    program, kernel = PAIR.pytorch_code, PAIR.triton_code
    spec = jsonl(
        tmp_path / "p.jsonl",
        {"pytorch_code": program, "triton_code": kernel, "entry_point": {"a": 1}},
        {"pytorch_code": program, "triton_code": kernel, "entry_point": 7},
        {"pytorch_code": program, "triton_code": kernel + "# \ud800"},
        {"pytorch_code": program + "x = '\ud800'", "triton_code": kernel},
        {"pytorch_code": "\ufeff" + program, "triton_code": "\ufeff" + kernel},
    )
    examples, reasons = read(spec)
    assert reasons == ["entry_point is no text"] * 2 + ["program or kernel holds half a character"] * 2
    assert [(e.pytorch_code, e.kernel_code) for e in examples] == [(program, kernel)]


def test_half_a_character_in_cuda_code_is_no_traceback_in_a_build(tmp_path: Path) -> None:
    spec = jsonl(
        tmp_path / "p.jsonl",
        {"pytorch_code": PAIR.pytorch_code, "cuda_code": CUDA + "// \ud800"},
        {"pytorch_code": PAIR.pytorch_code, "cuda_code": CUDA},
    )
    info = lexical_build(LocalStore(str(tmp_path / "index")), rows_of(spec)).run()
    assert (info.count, info.corpora[0].dropped) == (1, {"program or kernel holds half a character": 1})


def test_two_files_of_one_name_share_no_id(tmp_path: Path) -> None:
    found = list(pairs(6, 1))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    specs = [
        f"file:{write_pairs(tmp_path / 'a' / 'p.jsonl', found[:3])}",
        f"file:{write_pairs(tmp_path / 'b' / 'p.jsonl', found[3:])}",
    ]
    store = LocalStore(str(tmp_path / "index"))
    lexical_build(store, rows_of(*specs)).run()
    assert Index(store.uri).example_ids == [
        "file/p_0",
        "file/p_1",
        "file/p_2",
        "file/p_0#2",
        "file/p_1#2",
        "file/p_2#2",
    ]


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


def test_untrusted_speedups_of_our_traces_beat_nothing(tmp_path: Path) -> None:
    store = store_of(tmp_path / "a", story("cpu"), story("odd", sample=1))
    assert [(e.speedup, e.trusted) for e in read(f"traces:{store.uri}")[0]] == [(None, False)]
    store = store_of(tmp_path / "b", story("odd", "slow"))
    assert [(e.speedup, e.trusted) for e in read(f"traces:{store.uri}")[0]] == [(0.5, True)]


def test_a_damaged_file_of_our_traces_is_left_out_only_when_told(tmp_path: Path) -> None:
    for name in ("relu", "exp"):
        store_of(tmp_path, story("fast", of=task(name)))
    damaged, _ = sorted((tmp_path / "parts").iterdir())
    damaged.write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"1 damaged.*--skip-corrupt"):
        read(f"traces:{tmp_path}")
    said: list[str] = []
    examples, _ = read(f"traces:{tmp_path}", Wanted(skip_corrupt=True, say=said.append))
    assert len(examples) == 1
    assert said[0].startswith(f"left out: parts/{damaged.name}")


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
            row | {"Correct": True, "CUDA_Speedup_Native": float("inf")},
        )  # fmt: skip
    monkeypatch.setattr(corpus, "SAKANA", folder)
    examples, reasons = read("sakana", Wanted(sakana_levels=(2,)))
    assert [(e.example_id, e.language, e.speedup, e.correct) for e in examples] == [
        ("sakana/2/19_0", "cuda", 1.5, True), ("sakana/2/19_3", "cuda", None, True),
    ]  # fmt: skip
    assert reasons == ["kernel is not correct", "no CUDA kernel in it"]
    examples, _ = read("sakana", Wanted(sakana_levels=(1, 2), include_incorrect=True))
    assert [(e.example_id, e.correct) for e in examples[:3]] == [
        ("sakana/1/19_0", True), ("sakana/1/19_1", False), ("sakana/1/19_3", True),
    ]  # fmt: skip
    assert [e.example_id for e in examples[3:]] == ["sakana/2/19_0", "sakana/2/19_1", "sakana/2/19_3"]


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
        ([{"triton_code": "x"}], "no column reference_code or "),
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
