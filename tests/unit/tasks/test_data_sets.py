"""KernelBench and KernelBook are read from a checkout or through `datasets`, with the same ids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import MODULE, pairs, refusal

from kb_ray.tasks import Sources, plan


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
