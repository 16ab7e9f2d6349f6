"""Checking tasks gives a report for each, a table, counts and JSON; how references run is handed in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asking import FUNCTION, MODULE

from kb_ray.errors import InfraError
from kb_ray.records import ErrorDetail, Evidence, Stage, Status, Task, Verdict
from kb_ray.tasks import check, entries
from kb_ray.tasks.quality import EXCLUDING, FLAGS, UNTRUSTED, TaskReport, excluding


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "a_good.py").write_text(FUNCTION % 2)
    (tmp_path / "b_broken.py").write_text("def f(:\n")
    (tmp_path / "c_zeros.py").write_text(MODULE % ("Model", 1))
    (tmp_path / "d_raises.py").write_text(FUNCTION % 3)
    (tmp_path / "e_giant.py").write_text(FUNCTION % 4)
    return f"folder:{tmp_path}"


def answer(task: Task) -> Verdict:
    if task.name == "d_raises":
        return Verdict.of(Status.INFRA_ERROR, Stage.STATIC, error=ErrorDetail(category="X", message="it raised\nE: no"))
    flags = {"c_zeros": ("zeros_pass",), "e_giant": ("too_large",)}.get(task.name, ())
    return Verdict.of(Status.OK, Stage.FULL, evidence=Evidence(flags=flags, input_bytes=4096))


def test_each_task_gets_a_report_in_order_whatever_becomes_of_the_others(folder: str) -> None:
    found = list(check.reports(entries(folder), answer))
    assert [(r.task_id, r.loads, r.runs, r.deterministic, r.excluded) for r in found] == [
        ("folder/a_good", True, True, True, False),
        ("folder/b_broken", False, None, None, False),
        ("folder/c_zeros", True, True, True, True),
        ("folder/d_raises", True, False, None, False),
        ("folder/e_giant", True, None, None, False),
    ]
    assert "b_broken.py: is no valid Python" in str(found[1].error)
    assert found[3].error == "it raised E: no"
    assert (found[0].style, found[0].level, found[0].input_bytes) == ("function", 1, 4096)


def test_reports_come_as_they_are_made(folder: str) -> None:
    asked: list[str] = []

    def watched(task: Task) -> Verdict:
        asked.append(task.name)
        return answer(task)

    stream = check.reports(entries(folder), watched)
    next(stream)
    assert asked == ["a_good"]


def test_the_counts_and_the_json_say_what_the_table_says(folder: str) -> None:
    found = list(check.reports(entries(folder), answer))
    counts = {"tasks": 5, "load": 4, "run": 2, "fail": 1, "not_run": 1, "size_unknown": 0, "excluded": 1}
    assert check.summary(found) == {**counts, "flags": {"too_large": 1, "zeros_pass": 1}}
    read = json.loads(check.as_json(found, [folder], "cpu"))
    assert read["summary"] == check.summary(found)
    assert [task["task_id"] for task in read["tasks"]] == [r.task_id for r in found]
    assert [task["deterministic"] for task in read["tasks"]] == [True, None, True, None, None]
    text = check.summary_text(found)
    assert text.startswith("4 of 5 load; 2 run, 1 fail, 1 not run for their size; 1 would be excluded\n")


def test_a_size_that_is_unknown_is_not_told_as_too_large(folder: str) -> None:
    def unknown(task: Task) -> Verdict:
        flags = ("size_unknown",) if task.name in ("a_good", "c_zeros") else answer(task).evidence.flags
        return Verdict.of(Status.OK, Stage.STATIC, evidence=Evidence(flags=flags))

    found = list(check.reports(entries(folder), unknown))
    assert [item.runs for item in found] == [None, None, None, True, None]
    assert check.row(found[0], 20).endswith("size_unknown")
    text = check.summary_text(found)
    assert "1 not run for their size, 2 not run because it is unknown; 0 would" in text
    assert (check.summary(found)["not_run"], check.summary(found)["size_unknown"]) == (3, 2)


def test_columns_of_the_table_stand_under_their_headings(folder: str) -> None:
    found = list(check.reports(entries(folder), answer))
    lines = [check.heading(20), *(check.row(r, 20) for r in found)]
    for heading, cells in {
        "runs": ["yes", "-", "yes", "no", "-"],
        "inputs": ["4 KiB", "-", "4 KiB", "-", "4 KiB"],
    }.items():
        at = lines[0].index(heading)
        assert [line[at : at + 8].split("  ")[0].strip() for line in lines[1:]] == cells
    assert lines[3].endswith("zeros_pass")


def test_a_package_that_is_missing_is_named_with_how_to_get_it() -> None:
    told = check.explained("the reference raised ModuleNotFoundError: [\"No module named 'transformers.models'\"]")
    assert told == "needs transformers, which is not installed where references run: pip install transformers"


def test_a_failure_of_our_own_is_not_the_tasks(folder: str) -> None:
    def fails(task: Task) -> Verdict:
        raise InfraError("the judge is gone")

    first = next(check.reports(entries(folder), fails))
    assert (first.runs, first.error, first.excluded) == (False, "our own failure: the judge is gone", False)


@pytest.mark.parametrize(
    ("said", "model"),
    [
        ("OSError: ['PermissionError when downloading google/reformer-enwik8. Check']", "google/reformer-enwik8"),
        ("OSError: [\"PermissionError when downloading EleutherAI/gpt-neo-2.7B. Check\"]", "EleutherAI/gpt-neo-2.7B"),
        ("OSError: [\"We couldn't connect to 'https://huggingface.co' to load the files\"]", "a model"),
    ],
)  # fmt: skip
def test_a_reference_that_wants_a_model_of_the_hub_is_told_why_it_cannot_have_it(said: str, model: str) -> None:
    told = check.explained(f"the reference raised {said}")
    assert told.startswith(f"needs {model} from the Hugging Face hub")
    assert "without network" in told


def test_every_flag_is_explained_and_only_known_ones_exclude() -> None:
    assert UNTRUSTED < EXCLUDING < FLAGS.keys()
    assert all(meaning and "\n" not in meaning for meaning in FLAGS.values())
    assert excluding(["too_large", "zeros_pass", "shared", "ignores_input"]) == ("ignores_input", "zeros_pass")
    assert TaskReport.model_validate_json(TaskReport(task_id="x", loads=True).model_dump_json()).loads


def test_a_level_that_needs_a_package_names_it_where_the_import_really_fails() -> None:
    """A fresh interpreter for which the package is not installed imports the program as a sandbox would."""
    program = """
import importlib.machinery, sys, tempfile
class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "transformers" else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Without
from kb_ray.bench.child.loading import import_source
from kb_ray.bench.child.serving import describe
try:
    import_source("from transformers import AutoModelForCausalLM\\n", tempfile.mkdtemp(), "reference")
except Exception as error:
    said = describe(error)
    print(f"the reference raised {said['type']}: {said['message']}")
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "No module named 'transformers'" in said
    told = check.explained(said)
    assert told == "needs transformers, which is not installed where references run: pip install transformers"
