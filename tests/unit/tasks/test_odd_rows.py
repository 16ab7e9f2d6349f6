"""Rows and files that are odd, one at a time: named, skipped, and never in the way of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kb_ray.bench.api import local_device
from kb_ray.errors import ConfigError, TaskError
from kb_ray.prompts.opening import PromptSetting, opening_messages, shows_examples
from kb_ray.records import Verdict
from kb_ray.tasks import __main__ as command
from kb_ray.tasks import check, entries
from kb_ray.tasks.shapes import read_shapes
from tests.unit.refine_pieces import TASK

PROGRAM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(4)]


def get_init_inputs():
    return []
"""


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def outcomes(spec: str) -> list[str]:
    """What each entry gives: its task id, or why it gives none."""
    found = []
    for entry in entries(spec, None, {}):
        try:
            found.append(entry.make().task_id)
        except TaskError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"code": PROGRAM, "name": "\ud800"}, "half a character"),
        ({"code": PROGRAM, "name": "a", "task_id": "\udfff"}, "half a character"),
        ({"code": PROGRAM, "name": "a", "level": float("inf")}, "no whole number"),
        ({"code": PROGRAM, "name": "a", "level": -7}, "from 0 to 99"),
        ({"code": PROGRAM, "name": "a", "level": 99999}, "from 0 to 99"),
        ({"code": PROGRAM, "name": "a\nb"}, "name holds a line end"),
        ({"code": PROGRAM, "name": "a", "task_id": "a\u2028b"}, "task_id holds a line end"),
        ({"code": PROGRAM, "name": "a\tb"}, "another control character"),
        ("[" * 100_000, "nested too deeply"),
        ('{"code": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_an_odd_row_is_told_and_the_others_are_read(tmp_path: Path, odd: dict[str, Any] | str, told: str) -> None:
    file = write(tmp_path / "rows.jsonl", {"code": PROGRAM, "name": "fine"}, odd)
    first, second = outcomes(f"file:{file}")
    assert first == "file/fine"
    assert told in second


@pytest.mark.parametrize("level", [1, "1", 1.0])
def test_an_export_of_kernelbench_may_write_levels_as_it_likes(tmp_path: Path, level: object) -> None:
    file = write(
        tmp_path / "export.jsonl",
        {"code": PROGRAM, "level": level, "name": "19_ReLU", "problem_id": 19},
        {"code": PROGRAM, "level": float("inf"), "name": "20_Odd", "problem_id": 20},
        {"code": PROGRAM, "level": 1, "name": None, "problem_id": 21},
    )
    found = []
    for entry in entries("kernelbench:1", str(file), {}):
        try:
            found.append(entry.make().task_id)
        except TaskError as error:
            found.append(str(error))
    assert found[0] == "kernelbench/1/19_ReLU"
    assert "level" in found[1]
    assert found[2] == "name is missing"


def test_a_file_with_a_byte_order_mark_is_a_task(tmp_path: Path) -> None:
    (tmp_path / "marked.py").write_text("\ufeff" + PROGRAM, encoding="utf-8")
    assert outcomes(f"folder:{tmp_path}") == ["folder/marked"]


def test_check_tells_of_what_a_run_would_skip(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", {"code": PROGRAM, "name": "a"}, {"code": PROGRAM + "\n# b\n", "name": "a"})
    looked = list(check.reports(entries(f"file:{file}", None, {}), lambda task: Verdict.of("ok", "full")))
    assert [report.loads for report in looked] == [True, False]
    assert "same id as" in (looked[1].error or "")


def test_a_place_for_json_that_is_not_there_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["check", "builtin:1", "--json", str(tmp_path / "no" / "x.json")]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.skipif(local_device() == "cuda", reason="a GPU is there")
def test_a_gpu_that_is_not_there_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["check", "builtin:1", "--limit", "1", "--device", "cuda"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: --device cuda: no NVIDIA GPU is seen here")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "fine"),
    [("Write $reference", True), ("Write ${reference}", True), ("\ufeff<!-- user -->\n$reference", True),
     ("Write $$reference", False), ("Write", False)],
)  # fmt: skip
def test_a_template_must_ask_for_the_program(tmp_path: Path, text: str, fine: bool) -> None:
    path = tmp_path / "own.md"
    path.write_text(text if "<!--" in text else f"<!-- user -->\n{text}\n", encoding="utf-8")
    setting = PromptSetting(template=str(path), device="cpu")
    if fine:
        (message,) = opening_messages(TASK, setting)
        assert "class Model" in message.content or "def " in message.content
        assert not shows_examples(str(path))
    else:
        with pytest.raises(ConfigError, match=r"\$reference"):
            opening_messages(TASK, setting)


def test_text_that_is_no_utf8_costs_its_row_alone(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    code = pa.array([PROGRAM.encode(), b"# caf\xe9\n" + PROGRAM.encode(), PROGRAM.encode() + b"# c\n"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, code.buffers())
    pq.write_table(pa.table({"code": text, "name": ["a", "b", "c"]}), tmp_path / "rows.parquet")
    looked = list(
        check.reports(entries(f"file:{tmp_path / 'rows.parquet'}", None, {}), lambda task: Verdict.of("ok", "full"))
    )
    assert [report.loads for report in looked] == [True, False, True]
    assert "no UTF-8 text" in (looked[1].error or "")


@pytest.mark.parametrize("name", [["Model"], {"a": 1}, 7])
def test_an_entry_point_that_is_no_name_costs_nothing(tmp_path: Path, name: Any) -> None:
    rows = [{"python_code": PROGRAM, "triton_code": "x = 1", "entry_point": name}] * 2
    file = write(tmp_path / "rows.jsonl", *rows)
    looked = list(check.reports(entries(f"kernelbook:{file}", None, {}), lambda task: Verdict.of("ok", "full")))
    assert [report.loads for report in looked] == [True, True]


def test_shapes_that_nest_without_end_are_a_fault_of_their_row() -> None:
    with pytest.raises(TaskError, match="input_shapes is not JSON"):
        read_shapes("[" * 100_000)


@pytest.mark.parametrize("spec", ["folder:~nosuchuser/x", "file:~nosuchuser/x.jsonl", "folder:" + "a" * 5000])
def test_a_path_that_can_be_none_is_one_line(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["check", spec]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "flags", [["--timeout", "0"], ["--timeout", "nan"], ["--timeout", "inf"], ["--max-bytes", "0"]]
)
def test_numbers_that_are_none_are_refused_before_anything_runs(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["check", "builtin:1", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {flags[0]}: {flags[1]!r} is no number of ")
    assert said.endswith("; see python -m kb_ray.tasks check --help\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "the following arguments are required: command"),
        (["chek"], "command: invalid choice: 'chek'"),
        (["check"], "the following arguments are required: SPEC"),
        (["check", "builtin", "--limt", "3"], "unrecognized arguments: --limt 3"),
        (["check", "builtin", "--device"], "--device: expected one argument"),
        (["prepare", "--limit", "0"], "--limit: '0' is no number above 0"),
    ],
)
def test_a_command_that_cannot_be_read_is_one_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(argv) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {said}")
    assert "; see python -m kb_ray.tasks" in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)
