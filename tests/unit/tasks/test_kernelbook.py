"""KernelBook from a local file, and training files made of it: the ids, programs and levels of a run, everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import MODULE, pairs, refusal

from kb_ray.records import Task
from kb_ray.tasks import Sources, plan
from kb_ray.tasks.__main__ import main

KERNEL = "import triton\n\n@triton.jit\ndef kernel(x):\n    pass\n"
HELPED = """import torch
from torch import nn
class Big(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 1)
    def forward(self, x, y, z):
        return self.attention(x, y, z)
class Small(nn.Module):
    def forward(self, x):
        return torch.%s(x)
def get_inputs():
    return [torch.rand(4, 4)]
def get_init_inputs():
    return [[], {}]
"""
OLD = MODULE % ("Small", 1)
ROWS: list[dict[str, Any]] = [
    {"python_code": HELPED % name, "pytorch_code": OLD, "triton_code": KERNEL, "uuid": 7 + n, **named}
    for n, (name, named) in enumerate({
        "relu": {"entry_point": "Small", "module_name": "Small"},
        "tanh": {"entry_point": "Gone", "module_name": "Small"},
        "exp": {"entry_point": None, "module_name": None},
        "sin": {"entry_point": "Big", "module_name": "Big"},
    }.items())
]  # fmt: skip


@pytest.fixture(params=["rows.parquet", "rows.jsonl"])
def export(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data set as `datasets` finds it in the current folder."""
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "GPUMODE/KernelBook").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "GPUMODE/KernelBook/train.parquet")
    return tmp_path


def tasks(spec: str, skipped: list[str] | None = None) -> list[Task]:
    return [task for task, _ in plan(Sources(specs=(spec,)), pytest.fail if skipped is None else skipped.append)]


def labels(folder: Path) -> dict[str, int]:
    lines = [json.loads(line) for line in (folder / "difficulty_labels.jsonl").read_text().splitlines()]
    found = {line["task_id"]: line["level"] for line in lines}
    assert len(found) == len(lines)
    return found


def programs(folder: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in (folder / "sft_train.jsonl").read_text().splitlines()]
    assert str(folder.parent) not in json.dumps(lines)
    return {line["task_id"]: line["pytorch_code"] for line in lines}


def test_a_local_export_gives_the_tasks_of_the_hub(export: Path, hub: Path) -> None:
    local, published = tasks(f"kernelbook:{export}"), tasks("kernelbook")
    assert local == published
    assert [(task.task_id, task.entry_point) for task in local] == [
        ("kernelbook/0", "Small"), ("kernelbook/1", "Small"), ("kernelbook/2", "Small"), ("kernelbook/3", "Big"),
    ]  # fmt: skip
    assert not Sources(specs=(f"kernelbook:{export}",)).asks_hub


@pytest.mark.parametrize("spec", ["kernelbook", "kernelbook:{export}", "file:{export}"])
def test_training_files_have_the_ids_programs_and_levels_of_a_run(spec: str, export: Path, hub: Path) -> None:
    spec, skipped = spec.format(export=export), list[str]()
    run = tasks(spec, skipped)
    assert len(run) >= 3
    assert main(["prepare", spec, "--output", str(hub / "out")]) == 0
    assert labels(hub / "out") == {task.task_id: task.level for task in run}
    assert programs(hub / "out") == {task.task_id: task.reference_code for task in run}
    assert {task.level for task in run} == {1, 3}


def test_mapped_columns_mean_the_same_to_training_files(export: Path, tmp_path: Path) -> None:
    mapping = ["--column", "entry_point=module_name", "--column", "task_id=uuid", "--column", "code=python_code"]
    assert main(["prepare", f"file:{export}", "--output", str(tmp_path / "out"), *mapping]) == 0
    assert labels(tmp_path / "out") == {"7": 1, "8": 1, "9": 1, "10": 3}


def test_the_triton_column_can_have_another_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"code": OLD, "kernel": KERNEL, "words": "Add one.", "name": "a"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    spec, out = f"file:{tmp_path / 'rows.parquet'}", tmp_path / "out"
    assert main(["prepare", spec, "--output", str(out)]) == 2
    mapping = ["--column", "triton_code=kernel", "--column", "instruction=words"]
    assert main(["prepare", spec, "--output", str(out), *mapping]) == 0
    line = json.loads((out / "sft_train.jsonl").read_text())
    assert (line["task_id"], line["instruction"], line["triton_code"]) == ("file/a", "Add one.", KERNEL)
    assert main(["check", spec, "--column", "triton_code=kernel"]) == 2
    assert "one of the fields code, name" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["prepare", "check"])
def test_a_mapping_that_nothing_would_look_at_is_refused(
    command: str, export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, f"kernelbook:{export}", "--column", "entry_point=module_name"]) == 2
    assert "--column entry_point=...: it is for file: sources" in capsys.readouterr().err
    assert "file: sources" in refusal("builtin", columns={"code": "x"})


def test_a_program_has_one_label_however_many_kernels_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {**ROWS[1], "task_id": "x", "entry_point": "Small"}
    rows = [{**ROWS[0], "task_id": "x"}, {**ROWS[0], "task_id": "x", "triton_code": KERNEL + "# 2\n"}, other]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert main(["prepare", f"file:{tmp_path / 'rows.parquet'}", "--output", str(tmp_path / "out")]) == 0
    assert labels(tmp_path / "out") == {"x": 1}
    assert len((tmp_path / "out/sft_train.jsonl").read_text().splitlines()) == 2
    assert "row 2: another program is already called x" in capsys.readouterr().err


@pytest.mark.parametrize(("level", "label"), [(0, "basic"), (4, "advanced")])
def test_a_row_keeps_its_own_level(tmp_path: Path, level: int, label: str) -> None:
    pq.write_table(pa.Table.from_pylist([{**ROWS[0], "level": level}]), tmp_path / "rows.parquet")
    assert main(["prepare", f"file:{tmp_path / 'rows.parquet'}", "--output", str(tmp_path / "out")]) == 0
    line = json.loads((tmp_path / "out/difficulty_labels.jsonl").read_text())
    assert (line["level"], line["label"]) == (level, label)


@pytest.mark.parametrize(
    ("row", "source"),
    [
        ({"reference_code": OLD, "python_code": "x", "pytorch_code": "x", "code": "x"}, "reference_code"),
        ({"python_code": OLD, "pytorch_code": "x", "code": "x"}, "python_code"),
        ({"pytorch_code": OLD, "code": "x"}, "pytorch_code"),
    ],
)
def test_of_several_programs_the_same_one_counts_everywhere(tmp_path: Path, row: dict[str, str], source: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, "triton_code": KERNEL}) + "\n")
    assert [task.reference_code for task in tasks(f"file:{path}")] == [OLD]
    if source != "reference_code":
        assert [task.reference_code for task in tasks(f"kernelbook:{path}")] == [OLD]


def test_a_local_export_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "x"}\n')
    assert refusal(f"kernelbook:{tmp_path / 'gone.parquet'}").endswith("gone.parquet: no such file")
    assert "no column python_code or pytorch_code; its columns are: text" in refusal(
        f"kernelbook:{tmp_path / 'rows.jsonl'}"
    )


def test_samples_are_as_many_as_asked_for_where_an_export_repeats_rows(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    named = [(1, "1_A"), (2, "2_B"), (2, "2_B")]
    rows = [{"code": MODULE % ("Model", n), "level": 1, "name": name, "problem_id": n} for n, name in named]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for count in range(1, 8):
        drawn = pairs(kernelbench_samples=count, kernelbench_root=str(path))
        assert len(set(drawn)) == len(drawn) == count
