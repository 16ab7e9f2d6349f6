"""What is asked for becomes a stable list of tasks and samples, or one line that says what is wrong."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import FUNCTION, MODULE, pairs, refusal

from kb_ray.errors import ConfigError, TaskError
from kb_ray.tasks import Sources, entries, plan
from kb_ray.tasks.rows import read_columns


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
        ("folder/19_ReLU", "module", 1, 19),
        ("folder/level2/7_Sum", "module", 2, 7),
        ("folder/scale", "function", 1, None),
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


def test_columns_with_names_of_their_own_are_read_where_told(tmp_path: Path) -> None:
    rows = [{"torch_source": FUNCTION % 2, "title": "double", "grade": 3, "code": "not this"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    columns = read_columns(["code=torch_source", "name=title", "level=grade"])
    for spec in (jsonl(tmp_path / "rows.jsonl", *rows), f"file:{tmp_path / 'rows.parquet'}"):
        found = plan(Sources(specs=(spec,), columns=columns), lambda line: pytest.fail(line))
        assert [(task.task_id, task.level, task.reference_code) for task, _ in found] == [
            ("file/double", 3, FUNCTION % 2)
        ]


def test_a_mapping_to_a_column_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", {"torch_source": FUNCTION % 2})
    line = refusal(spec, columns={"code": "source"})
    assert "no column source, given for code; its columns are: torch_source" in line


@pytest.mark.parametrize("pair", ["code", "code=", "=x", "program=x"])
def test_a_mapping_that_is_no_pair_of_field_and_column_is_refused_with_the_fields(pair: str) -> None:
    with pytest.raises(ConfigError, match=r"give FIELD=COLUMN, with one of the fields code, name"):
        read_columns([pair])


def test_lines_are_read_when_wanted_and_not_kept(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", *({"code": FUNCTION % n, "note": "x" * 100_000} for n in range(100)))
    tracemalloc.start()
    try:
        found = entries(spec)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert found[42].make().reference_code == FUNCTION % 42


def test_a_file_that_went_away_is_told_for_the_row(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", {"code": FUNCTION % 1})
    found = entries(spec)
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(TaskError, match="cannot be read: No such file"):
        found[0].make()


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


@pytest.mark.parametrize("spec", ["", "bulitin", "kernelbenchh:1", "http://x"])
def test_an_unknown_source_is_refused_with_those_there_are(spec: str) -> None:
    line = refusal(spec)
    assert repr(spec) in line
    assert "builtin[:LEVELS]" in line


@pytest.mark.parametrize(
    "spec", ["builtin:", "builtin:one", "builtin:1;2", "kernelbench:-1", "folder:", "file:", "kernelbook:"]
)
def test_a_source_with_an_unusable_argument_is_refused(spec: str) -> None:
    assert repr(spec) in refusal(spec)


@pytest.mark.parametrize("spec", ["builtin:9", "kernelbench:5"])
def test_a_level_that_does_not_exist_is_refused_with_those_that_do(spec: str) -> None:
    assert f"no level {spec[-1]}; there are levels 1" in refusal(spec)


def test_asking_for_nothing_is_refused() -> None:
    assert "no tasks: give --tasks" in refusal()
    assert "no tasks: give --tasks" in refusal(kernelbook_samples=0, kernelbench_samples=0)
