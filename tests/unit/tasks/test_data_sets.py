"""KernelBench and KernelBook are read from a checkout or through `datasets`, with the same ids."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import MODULE, pairs, refusal

from kb_ray.tasks import Sources, kernelbook, plan
from kb_ray.tasks.__main__ import main


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


def test_two_folders_of_one_level_are_named_and_none_is_dropped(checkout: str) -> None:
    again = Path(checkout, "KernelBench", "level_1")
    again.mkdir()
    (again / "3_Other.py").write_text(MODULE % ("Model", 3))
    assert "level1 and level_1 are both level 1" in refusal("kernelbench:3", kernelbench_root=checkout)


def test_check_finds_a_checkout_where_a_run_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", "gone/second")
    monkeypatch.setenv("KB_RAY_KERNELBENCH_ROOT", "gone/first")
    for flags, named in (([], "gone/first"), (["--kernelbench-root", "gone/flag"], "gone/flag")):
        assert main(["check", "kernelbench:1", *flags]) == 2
        assert f"there is no folder {named};" in capsys.readouterr().err


def test_a_row_of_the_hub_without_a_name_is_told_and_skipped(hub: Path) -> None:
    (place,) = (hub / "ScalingIntelligence/KernelBench").rglob("*level_1*")
    rows = pq.read_table(place).to_pylist()
    pq.write_table(pa.Table.from_pylist([rows[0] | {"name": None}, *rows]), place)
    skipped: list[str] = []
    assert all(not task_id.endswith("None") for task_id, _ in pairs("kernelbench:1", skipped=skipped))
    assert skipped == ["ScalingIntelligence/KernelBench level_1 row 0: name is missing"]


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
        {
            "python_code": code,
            "triton_code": "",
            "entry_point": e,
            "module_name": m,
            "uuid": i,
            "licenses": ["MIT", "X11"],
        }
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
    assert {task.license for task in tasks} == {"MIT, X11"}
    assert len(skipped) == 1
    assert skipped[0].startswith("GPUMODE/KernelBook row 1: ")


def test_the_columns_of_earlier_descriptions_of_kernelbook_are_known(hub: Path) -> None:
    rows = [{"instruction": "Add one.", "pytorch_code": MODULE % ("Sum", 1), "triton_code": "x = 1"}]
    pq.write_table(pa.Table.from_pylist(rows), hub / "GPUMODE/KernelBook/train.parquet")
    assert [(t.entry_point, t.level) for t, _ in plan(Sources(specs=("kernelbook",)), pytest.fail)] == [("Sum", 1)]
    assert main(["prepare", "--output", "processed"]) == 0
    written = [json.loads(line) for line in (hub / "processed/sft_train.jsonl").read_text().splitlines()]
    assert [(row["task_id"], row["instruction"], row["triton_code"]) for row in written] == [
        ("kernelbook/0", "Add one.", "x = 1")
    ]


def test_a_run_that_draws_a_few_of_many_rows_reads_no_more_than_these(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"python_code": MODULE % ("Sum", n), "triton_code": "", "entry_point": "Sum"} for n in range(500)]
    pq.write_table(pa.Table.from_pylist(rows), hub / "GPUMODE/KernelBook/train.parquet")
    read: list[str] = []
    make = kernelbook.row_task
    monkeypatch.setattr(kernelbook, "row_task", lambda row, **more: read.append(more["task_id"]) or make(row, **more))
    assert len(pairs(kernelbook_samples=7)) == len(read) == 7


def test_a_checkout_nearby_is_found_and_a_given_one_goes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, where in {"1_Near": "KernelBench", "1_Given": "elsewhere"}.items():
        base = tmp_path / where / "KernelBench/level1"
        base.mkdir(parents=True)
        (base / f"{name}.py").write_text(MODULE % ("Model", 1))
    (tmp_path / "project").mkdir()
    for folder in (tmp_path, tmp_path / "project"):
        monkeypatch.chdir(folder)
        assert not Sources(specs=("kernelbench",)).asks_hub
        assert pairs("kernelbench:1") == [("kernelbench/1/1_Near", 0)]
    assert pairs("kernelbench", kernelbench_root=str(tmp_path / "elsewhere")) == [("kernelbench/1/1_Given", 0)]
    wrong = refusal("kernelbench", kernelbench_root=str(tmp_path / "project"))
    assert str(tmp_path / "project") in wrong
    assert "KERNELBENCH_ROOT" in wrong


@pytest.mark.parametrize("name", ["export.parquet", "export.jsonl"])
def test_an_export_to_one_file_gives_the_ids_of_a_checkout(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [
        {"code": MODULE % ("Model", n), "level": n, "name": f"{n}_Op.py", "problem_id": 7 * n} for n in (1, 2, 2)
    ] + [{"code": "def f(:", "level": 1, "name": "9_Bad", "problem_id": 9}]
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"level": null}\n')
    skipped: list[str] = []
    first = [("kernelbench/1/1_Op", 0), ("kernelbench/2/2_Op", 0)]
    assert pairs("kernelbench", kernelbench_root=str(path), skipped=skipped) == first
    place = "row 3" if name.endswith("parquet") else "line 4"
    assert skipped[0].startswith(f"{path} {place}: code: is no valid Python")
    assert pairs("kernelbench:2", kernelbench_root=str(path), skipped=[]) == first[1:]
    assert "no level 9" in refusal("kernelbench:9", kernelbench_root=str(path))
    task = plan(Sources(specs=("kernelbench:2",), kernelbench_root=str(path)), skipped.append)[0][0]
    assert (task.source, task.level, task.problem_id) == ("kernelbench", 2, 14)


def test_an_export_without_the_columns_of_the_data_set_names_those_it_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"code": ["x"], "title": ["y"]}), tmp_path / "export.parquet")
    assert "no column level; its columns are: code, title" in refusal(
        "kernelbench", kernelbench_root=str(tmp_path / "export.parquet")
    )


def test_a_level_that_needs_a_package_is_read_without_it(checkout: str) -> None:
    folder = Path(checkout) / "KernelBench/level4"
    folder.mkdir()
    (folder / "1_gpt.py").write_text("from transformers import AutoModel\n" + MODULE % ("Model", 1))
    assert pairs("kernelbench:4", kernelbench_root=checkout) == [("kernelbench/4/1_gpt", 0)]


@pytest.mark.parametrize("status", [401, 403])
def test_the_hub_is_asked_with_the_users_token_and_a_refusal_names_it(tmp_path: Path, status: int) -> None:
    asked: list[tuple[str, str | None]] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_error(status)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        env = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_TOKEN": "hf_secret"}
        said = planned_elsewhere(tmp_path, "kernelbook_samples", **env)
    finally:
        server.shutdown()
        server.server_close()
    assert ("/api/datasets/GPUMODE/KernelBook", "Bearer hf_secret") in asked
    assert "cannot be loaded" in said
    assert "set HF_TOKEN to a token" in said
    assert "hf_secret" not in said


def test_what_is_cached_already_needs_no_hub(hub: Path, tmp_path: Path) -> None:
    pairs("kernelbook", skipped=[])
    cached = tmp_path / "cache"
    local = next(folder for folder in cached.iterdir() if folder.name.endswith("kernel_book"))
    shutil.copytree(local, tmp_path / "other/datasets/GPUMODE___kernel_book")
    (tmp_path / "empty").mkdir()
    env = {"HF_HOME": str(tmp_path / "other"), "HF_HUB_OFFLINE": "1"}
    assert planned_elsewhere(tmp_path / "empty", "kernelbook_samples", **env) == "2 of kernelbook"


def planned_elsewhere(folder: Path, ask: str, **env: str) -> str:
    """What a fresh interpreter in `folder` says of a plan of two samples."""
    program = (
        "from kb_ray.errors import ConfigError\nfrom kb_ray.tasks import Sources, plan\n"
        f"try:\n    found = plan(Sources({ask}=2), lambda line: None)\n"
        "    print(len(found), 'of', found[0][0].source)\nexcept ConfigError as error:\n    print(error)\n"
    )
    env = {**os.environ, "HF_HOME": str(folder), **env, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_a_data_set_with_other_columns_is_refused_with_those_it_has(hub: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), hub / "GPUMODE/KernelBook/train.parquet")
    assert "its columns are: text" in refusal(kernelbook_samples=1)


@pytest.mark.parametrize("ask", ["kernelbook_samples", "kernelbench_samples"])
def test_a_hub_out_of_reach_is_one_line_that_names_the_local_way(tmp_path: Path, ask: str) -> None:
    said = planned_elsewhere(tmp_path, ask, HF_ENDPOINT="http://127.0.0.1:9")
    assert len(said.splitlines()) == 1
    assert "cannot be loaded" in said
    assert "HF_TOKEN" not in said
    assert "kernelbook:PATH" in said or "--kernelbench-root" in said


def test_listing_tasks_loads_neither_torch_nor_the_data_set_library() -> None:
    program = "import sys, kb_ray.tasks as t; t.plan(t.Sources(('builtin',)), print); print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    loaded = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert not {"torch", "triton", "datasets", "ray", "numpy"} & set(loaded.stdout.split())
