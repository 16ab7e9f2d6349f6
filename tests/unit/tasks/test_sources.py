"""What is asked for becomes a stable list of tasks and samples, or one line that says what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kb_ray.errors import ConfigError
from kb_ray.tasks import Sources, plan

FUNCTION = 'input_shapes = {"x": {"shape": [4], "dtype": "float32"}}\ndef reference_impl(x):\n    return x * %d\n'
MODULE = """import torch
class %s(torch.nn.Module):
    def forward(self, x):
        return x + %d
def get_inputs():
    return [torch.rand(4, 4)]
def get_init_inputs():
    return []
"""


def pairs(*specs: str, skipped: list[str] | None = None, **more: Any) -> list[tuple[str, int]]:
    def fail(line: str) -> None:
        raise AssertionError(line)

    on_skip = fail if skipped is None else skipped.append
    return [(task.task_id, sample) for task, sample in plan(Sources(specs=specs, **more), on_skip)]


def refusal(*specs: str, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        pairs(*specs, skipped=[], **more)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "tasks"
    (root / "level2").mkdir(parents=True)
    (root / "scale.py").write_text(FUNCTION % 3)
    (root / "19_ReLU.py").write_text(MODULE % ("Model", 1))
    (root / "level2" / "7_Sum.py").write_text(MODULE % ("Model", 2))
    (root / "_notes.py").write_text("not a task")
    return root


def jsonl(path: Path, *rows: object) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return f"file:{path}"


# Folders


def test_a_folder_gives_one_task_per_file_named_by_its_path(folder: Path) -> None:
    tasks = [task for task, _ in plan(Sources(specs=(f"folder:{folder}",)), lambda line: pytest.fail(line))]
    assert [(t.task_id, t.style, t.level, t.problem_id) for t in tasks] == [
        ("folder/19_ReLU", "module", None, 19),
        ("folder/level2/7_Sum", "module", 2, 7),
        ("folder/scale", "function", None, None),
    ]
    assert tasks[0].reference_code == (folder / "19_ReLU.py").read_text()


def test_one_malformed_file_among_many_is_reported_and_skipped(folder: Path) -> None:
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "latin.py").write_bytes(b"# caf\xe9\n")
    skipped: list[str] = []
    assert len(pairs(f"folder:{folder}", skipped=skipped)) == 3
    assert [line.partition(": ")[0] for line in skipped] == [str(folder / "broken.py"), str(folder / "latin.py")]


def test_a_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no such folder" in refusal(f"folder:{tmp_path / 'gone'}")
    assert "not a folder" in refusal(f"folder:{folder / 'scale.py'}")
    assert "holds no .py file" in refusal(f"folder:{tmp_path / 'empty'}")
    (tmp_path / "empty" / "x.py").write_text("x = 1")
    assert "none of its 1 tasks can be used" in refusal(f"folder:{tmp_path / 'empty'}")


# Files


@pytest.mark.parametrize("column", ["reference_code", "pytorch_code", "python_code", "code"])
def test_a_file_may_hold_programs_under_any_of_the_known_names(tmp_path: Path, column: str) -> None:
    rows = [{column: FUNCTION % 2, "name": "double"}, {column: MODULE % ("Model", 1)}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    spec = jsonl(tmp_path / "rows.jsonl", *rows)
    expected = [("file/double", 0), ("file/rows_1", 0)]
    assert pairs(spec) == pairs(f"file:{tmp_path / 'rows.parquet'}") == expected


def test_columns_of_a_file_reach_the_task(tmp_path: Path) -> None:
    shapes = {"x": {"shape": [8, 2], "dtype": "float16"}}
    row = {
        "code": FUNCTION % 2,
        "name": "19_ReLU",
        "level": 1,
        "task_id": "kernelbench/1/19_ReLU",
        "input_shapes": shapes,
        "uuid": "abc",
        "entry_point": None,
        "problem_id": None,
    }
    module_row = {"code": MODULE % ("Gate", 3) + (MODULE % ("Other", 4)), "entry_point": "Gate", "problem_id": 5.0}
    pq.write_table(pa.Table.from_pylist([row, module_row]), tmp_path / "rows.parquet")
    spec = jsonl(tmp_path / "rows.jsonl", {**row, "input_shapes": json.dumps(shapes)}, module_row)
    for each in (spec, f"file:{tmp_path / 'rows.parquet'}"):
        first, second = [task for task, _ in plan(Sources(specs=(each,)), lambda line: pytest.fail(line))]
        assert (first.task_id, first.name, first.level, first.problem_id, first.uuid) == (
            "kernelbench/1/19_ReLU",
            "19_ReLU",
            1,
            19,
            "abc",
        )
        assert first.input_shapes is not None
        assert first.input_shapes["x"].shape == (8, 2)
        assert (second.entry_point, second.problem_id, second.source) == ("Gate", 5, "file")


def test_malformed_rows_are_reported_by_line_and_skipped(tmp_path: Path) -> None:
    spec = jsonl(
        tmp_path / "rows.jsonl",
        {"code": FUNCTION % 1},
        "{not json",
        {"code": None},
        {"code": FUNCTION % 1, "level": "easy"},
        {"other": 1},
        "[1]",
        {"code": FUNCTION % 1, "entry_point": "Gone"},
        {"code": FUNCTION % 9},
    )
    skipped: list[str] = []
    assert pairs(spec, skipped=skipped) == [("file/rows_0", 0), ("file/rows_7", 0)]
    lines = [2, 3, 4, 5, 6, 7]
    assert [line.split("line ")[1].split(":")[0] for line in skipped] == [str(number) for number in lines]


def test_a_file_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    (tmp_path / "bad.jsonl").write_text("hello\n")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "rows.csv").write_text("code\n")
    pq.write_table(pa.table({"prompt": ["x"], "answer": ["y"]}), tmp_path / "other.parquet")
    pq.write_table(pa.table({"code": pa.array([], pa.string())}), tmp_path / "none.parquet")
    assert "no such file" in refusal(f"file:{tmp_path / 'gone.jsonl'}")
    assert "not a file" in refusal(f"file:{tmp_path}")
    assert "no readable Parquet" in refusal(f"file:{tmp_path / 'bad.parquet'}")
    assert "no line is a JSON object" in refusal(f"file:{tmp_path / 'bad.jsonl'}")
    assert "holds no row" in refusal(f"file:{tmp_path / 'empty.jsonl'}")
    assert "holds no row" in refusal(f"file:{tmp_path / 'none.parquet'}")
    assert ".parquet or .jsonl" in refusal(f"file:{tmp_path / 'rows.csv'}")
    assert "its columns are: answer, prompt" in refusal(f"file:{tmp_path / 'other.parquet'}")
    assert "its columns are: text" in refusal(jsonl(tmp_path / "keys.jsonl", {"text": "x"}))


# Samples, several sources, repeated ids


def test_every_task_gets_its_first_sample_before_any_gets_a_second(folder: Path) -> None:
    names = ["folder/19_ReLU", "folder/level2/7_Sum", "folder/scale"]
    assert pairs(f"folder:{folder}", samples=2) == [(n, 0) for n in names] + [(n, 1) for n in names]


def test_more_samples_keep_the_pairs_of_fewer(folder: Path) -> None:
    assert set(pairs(f"folder:{folder}", samples=2)) < set(pairs(f"folder:{folder}", samples=3))


def test_the_same_task_from_two_sources_is_kept_once_at_its_first_place(folder: Path) -> None:
    once = pairs("builtin:1", f"folder:{folder}")
    assert pairs("builtin:1", f"folder:{folder}", "builtin:1", f"folder:{folder}") == once


def test_another_program_of_the_same_id_is_reported_and_skipped(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "scale.py").write_text(FUNCTION % 4)
    (other / "new.py").write_text(FUNCTION % 4)
    skipped: list[str] = []
    found = pairs(f"folder:{folder}", f"folder:{other}", skipped=skipped)
    assert ("folder/new", 0) in found
    assert skipped == [f"{other / 'scale.py'}: another program is already called folder/scale"]


@pytest.mark.parametrize("spec", ["", "bulitin", "kernelbook:1", "kernelbenchh:1", "http://x"])
def test_an_unknown_source_is_refused_with_those_there_are(spec: str) -> None:
    line = refusal(spec)
    assert repr(spec) in line
    assert "builtin[:LEVELS]" in line


@pytest.mark.parametrize("spec", ["builtin:", "builtin:one", "builtin:1;2", "kernelbench:-1", "folder:", "file:"])
def test_a_source_with_an_unusable_argument_is_refused(spec: str) -> None:
    assert repr(spec) in refusal(spec)


@pytest.mark.parametrize("spec", ["builtin:9", "kernelbench:5"])
def test_a_level_that_does_not_exist_is_refused_with_those_that_do(spec: str) -> None:
    assert f"no level {spec[-1]}; there are levels 1" in refusal(spec)


def test_asking_for_nothing_is_refused() -> None:
    assert "no tasks: give --tasks" in refusal()
    assert "no tasks: give --tasks" in refusal(kernelbook_samples=0, kernelbench_samples=0)


# KernelBench and KernelBook


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    for level, names in {1: ["19_ReLU", "2_Sum", "100_Loss"], 3: ["1_MLP"]}.items():
        base = tmp_path / "KernelBench" / f"level{level}"
        base.mkdir(parents=True)
        for name in names:
            (base / f"{name}.py").write_text(MODULE % ("Model", len(name)))
    return str(tmp_path)


def test_a_kernelbench_checkout_gives_its_problems_by_level_and_number(checkout: str) -> None:
    first = [("kernelbench/1/2_Sum", 0), ("kernelbench/1/19_ReLU", 0), ("kernelbench/1/100_Loss", 0)]
    third = [("kernelbench/3/1_MLP", 0)]
    assert pairs("kernelbench", kernelbench_root=checkout) == first + third
    assert pairs("kernelbench:3,1", kernelbench_root=checkout) == first + third
    assert pairs("kernelbench:3", kernelbench_root=os.path.join(checkout, "KernelBench")) == third


def test_more_kernelbench_samples_than_problems_give_further_samples(checkout: str) -> None:
    drawn = pairs(kernelbench_samples=6, kernelbench_root=checkout)
    assert len(set(drawn)) == 6
    assert {sample for _, sample in drawn[:4]} == {0}
    assert {sample for _, sample in drawn[4:]} == {1}


def test_a_checkout_without_the_wanted_level_is_refused(checkout: str, tmp_path: Path) -> None:
    assert "holds no level2/*.py" in refusal("kernelbench:2", kernelbench_root=checkout)
    assert "--kernelbench-root" in refusal("kernelbench", kernelbench_root=str(tmp_path / "gone"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both data sets as `datasets` finds them in the current folder, columns as published."""
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    bench, book = tmp_path / "ScalingIntelligence/KernelBench", tmp_path / "GPUMODE/KernelBook"
    for level in range(1, 5):
        rows = [{"code": MODULE % ("Model", level), "level": level, "name": f"{level}_Op", "problem_id": level}]
        (bench / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), bench / f"data/level_{level}-00000-of-00001.parquet")
    book.mkdir(parents=True)
    programs = [MODULE % ("Gate", 1) + MODULE % ("Mix", 2), "def f(:", MODULE % ("Sum", 3)]
    named = [("Gate", "Gate"), ("Gone", "Gone"), ("Renamed", "Sum")]
    rows = [
        {"python_code": code, "triton_code": "", "entry_point": e, "module_name": m, "uuid": i, "stars": 3}
        for i, (code, (e, m)) in enumerate(zip(programs, named, strict=True))
    ]
    pq.write_table(pa.Table.from_pylist(rows), book / "train.parquet")
    return tmp_path


def test_kernelbench_from_the_hub_gives_the_ids_of_a_checkout(hub: Path) -> None:
    assert pairs("kernelbench:1,2") == [("kernelbench/1/1_Op", 0), ("kernelbench/2/2_Op", 0)]
    assert len(set(pairs(kernelbench_samples=10))) == 10


def test_kernelbook_rows_name_their_class_and_keep_index_and_uuid(hub: Path) -> None:
    skipped: list[str] = []
    tasks = [task for task, _ in plan(Sources(specs=("kernelbook",)), skipped.append)]
    assert [(t.task_id, t.entry_point, t.uuid, t.init_convention) for t in tasks] == [
        ("kernelbook/0", "Gate", "0", "args_kwargs"),
        ("kernelbook/2", "Sum", "2", "args_kwargs"),
    ]
    assert len(skipped) == 1
    assert skipped[0].startswith("GPUMODE/KernelBook row 1: ")


def test_a_data_set_with_other_columns_is_refused_with_those_it_has(hub: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), hub / "GPUMODE/KernelBook/train.parquet")
    assert "its columns are: text" in refusal(kernelbook_samples=1)


@pytest.mark.parametrize("ask", ["kernelbook_samples", "kernelbench_samples"])
def test_a_hub_out_of_reach_is_one_line_that_names_the_local_way(tmp_path: Path, ask: str) -> None:
    program = (
        "from kb_ray.errors import ConfigError\nfrom kb_ray.tasks import Sources, plan\n"
        f"try:\n    plan(Sources({ask}=3), print)\nexcept ConfigError as error:\n    print(error)\n"
    )
    env = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    env |= {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert "cannot be loaded" in done.stdout
    assert "--tasks file:PATH" in done.stdout or "--kernelbench-root" in done.stdout


def test_listing_tasks_loads_neither_torch_nor_the_data_set_library() -> None:
    program = "import sys, kb_ray.tasks as t; t.plan(t.Sources(('builtin',)), print); print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    loaded = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert not {"torch", "triton", "datasets", "ray", "numpy"} & set(loaded.stdout.split())
