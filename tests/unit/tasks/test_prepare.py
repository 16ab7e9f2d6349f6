"""Training pairs and difficulty labels are written from rows, one pass, with what cannot be used told and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import MODULE

from kb_ray.tasks.__main__ import main

KERNEL = "import triton\n\n@triton.jit\ndef kernel(x):\n    pass\n"
CHAIN = (MODULE % ("Chain", 1)).replace("x + 1", "torch.relu(torch.tanh(x))")
ROWS: list[dict[str, Any]] = [
    {"instruction": "Add one.", "pytorch_code": MODULE % ("Sum", 1), "triton_code": KERNEL},
    {"instruction": None, "pytorch_code": CHAIN, "triton_code": KERNEL},
    {"instruction": "", "pytorch_code": "def f(:", "triton_code": KERNEL},
    {"instruction": "", "pytorch_code": MODULE % ("Sum", 2), "triton_code": "def f(:"},
    {"instruction": "", "pytorch_code": MODULE % ("Sum", 3), "triton_code": None},
]


def written(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def table(path: Path, rows: list[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return f"file:{path}"


def test_pairs_and_labels_are_written_and_unusable_rows_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = table(tmp_path / "book.parquet", ROWS), tmp_path / "processed"
    assert main(["prepare", spec, "--output", str(out)]) == 0
    pairs, labels = written(out, "sft_train.jsonl"), written(out, "difficulty_labels.jsonl")
    assert [set(pair) for pair in pairs] == [{"task_id", "instruction", "pytorch_code", "triton_code", "level"}] * 2
    assert [(pair["pytorch_code"], pair["triton_code"]) for pair in pairs] == [
        (row["pytorch_code"], KERNEL) for row in ROWS[:2]
    ]
    assert pairs[0]["instruction"] == "Add one."
    assert "PyTorch" in pairs[1]["instruction"]
    assert [(label["level"], label["label"]) for label in labels] == [(1, "basic"), (2, "fusion"), (1, "basic")]
    assert [label["task_id"] for label in labels] == ["file/book_0", "file/book_1", "file/book_4"]
    assert [pair["task_id"] for pair in pairs] == ["file/book_0", "file/book_1"]
    said = capsys.readouterr()
    places = [line.partition(": is no valid Python")[0] for line in said.err.splitlines()]
    assert [place.partition("book.parquet ")[2] for place in places] == ["row 2: pytorch_code", "row 3: triton_code"]
    assert "2 rows" in said.out
    assert "basic 2, fusion 1" in said.out
    assert sorted(path.name for path in out.iterdir()) == ["difficulty_labels.jsonl", "sft_train.jsonl"]


def test_a_limit_and_columns_of_other_names_are_honoured(tmp_path: Path) -> None:
    rows = [{"source": row["pytorch_code"], "triton_code": KERNEL} for row in ROWS[:2]]
    spec, out = table(tmp_path / "book.parquet", rows), tmp_path / "processed"
    assert main(["prepare", spec, "--output", str(out), "--limit", "1", "--column", "code=source"]) == 0
    assert len(written(out, "sft_train.jsonl")) == 1


def test_a_file_without_triton_programs_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = table(tmp_path / "book.parquet", [{"pytorch_code": "x"}]), tmp_path / "processed"
    assert main(["prepare", spec, "--output", str(out)]) == 2
    assert "no column triton_code; its columns are: pytorch_code" in capsys.readouterr().err
    assert main(["prepare", "builtin", "--output", str(out)]) == 2
    assert not out.exists()


def test_files_of_an_earlier_time_stay_until_new_ones_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, out = table(tmp_path / "book.parquet", ROWS), tmp_path / "processed"
    assert main(["prepare", spec, "--output", str(out)]) == 0
    before = (out / "sft_train.jsonl").read_bytes()

    def broken(*args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kb_ray.tasks.prepare.check_syntax", broken)
    with pytest.raises(KeyboardInterrupt):
        main(["prepare", spec, "--output", str(out)])
    assert (out / "sft_train.jsonl").read_bytes() == before
