"""The check of a store: what an episode says of its task is what its id says, and other episodes of the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kb_ray.bench.protocol import BenchSettings
from kb_ray.bench.recheck import renewed_run
from kb_ray.records import Episode, Task, TensorSpec
from kb_ray.traces.columns import VERSION_KEY
from kb_ray.traces.layout import RUN_KEY, list_parts
from kb_ray.traces.run import RunInfo
from kb_ray.traces.store import Store
from kb_ray.training.rl_command import _info
from kb_ray.training.rl_settings import GrpoSettings
from kb_ray.verifying.checking import check
from kb_ray.verifying.rules import rules_of
from kb_ray.verifying.task import task_faults
from tests.unit.drive_stand_ins import task
from tests.unit.verifying.sound_stores import RUN, add, first_table, renamed, write_raw


def another(**changes: Any) -> Callable[[Episode], Episode]:
    """A further sample of the same task, which says something else of it."""
    return lambda one: renamed(one, sample=1, task=one.task.model_copy(update=changes))


READ_OUT: dict[str, Any] = {
    "style": "module", "entry_point": "return", "init_convention": "args_kwargs",
    "input_shapes": {"x": TensorSpec(shape=(1,))},
}  # fmt: skip
DESCRIBED: dict[str, Any] = {
    "source": "file", "level": 3, "problem_id": 7, "uuid": "u", "license": "MIT", "flags": ("random",),
}  # fmt: skip


@pytest.mark.parametrize("name", READ_OUT)
def test_a_task_that_only_one_episode_uses_so_is_a_fault(store: Store, name: str) -> None:
    key = add(store, another(**{name: READ_OUT[name]}))
    told = [(fault.kind, fault.part, fault.episode, fault.what) for fault in check(store).faults]
    whose = (key, "folder/t0 sample 1 attempt 1")
    assert told == [("task", *whose, f"its task has another {name} than in {first_part(store, key)}")]


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_only_one_episode_says_besides_is_a_note(store: Store, name: str) -> None:
    add(store, another(**{name: DESCRIBED[name]}))
    found = check(store)
    assert found.faults == ()
    [note] = [note for note in found.notes if "of their task" in note]
    assert note.startswith(f"1 episodes say another {name} of their task than earlier ones, first folder/t0 sample ")


def first_part(store: Store, added: str) -> str:
    """The file that readers take first of two with the task."""
    return next(key for key in list_parts(store) if key != added)


def test_a_further_sample_of_the_same_task_is_none(store: Store) -> None:
    add(store, another())
    assert check(store).faults == ()


def test_what_a_version_reads_out_of_a_program_another_may_read_otherwise(store: Store) -> None:
    run = RUN.model_copy(update={"versions": {"wording": "another"}})
    store.replace(RUN_KEY, run.model_dump_json().encode())
    add(store, another(style="module"))
    assert check(store).faults == ()
    add(store, lambda one: renamed(one, sample=2, task=one.task.model_copy(update={"reference_code": PROGRAM})))
    assert "task" in [fault.kind for fault in check(store).faults]


def test_a_licence_that_files_of_an_older_version_had_no_column_for_is_no_difference(store: Store) -> None:
    key = list_parts(store)[0]
    older = first_table(store).drop_columns(["license"]).replace_schema_metadata({VERSION_KEY: "3"})
    add(store, another(license="MIT"))
    assert any("another license" in note for note in check(store).notes)
    store.delete(key)
    write_raw(store, older)
    assert not any("another license" in note for note in check(store).notes)


PROGRAM = "class Model:\n    pass\n"
SOUND = (
    {"task_id": "builtin/1/relu", "source": "builtin", "level": 1, "name": "relu"},
    {"task_id": "kernelbench/2/7_A/B", "source": "kernelbench", "level": 2, "name": "7_A/B"},
    {"task_id": "kernelbook/12", "source": "kernelbook", "level": 3, "name": "Net"},
    {"task_id": "folder/level2/a.b", "source": "folder", "level": 2, "name": "a.b"},
    {"task_id": "file/rows_0", "source": "file", "level": 1, "name": "rows_0"},
    {"task_id": "mine", "source": "file", "level": 1, "name": "relu"},
)
WRONG = (
    {"level": 2}, {"name": "tanh"}, {"source": "kernelbench"}, {"source": "folder"}, {"source": "kernelbook"},
    {"entry_point": "Net"}, {"level": None},
)  # fmt: skip


def made(**fields: Any) -> Task:
    return task(0).model_copy(update={"reference_code": PROGRAM, "entry_point": "Model"} | fields)


@pytest.mark.parametrize("fields", SOUND)
def test_tasks_of_every_source_are_what_their_ids_say(fields: dict[str, Any]) -> None:
    assert list(task_faults(made(**fields))) == []


@pytest.mark.parametrize("change", WRONG)
def test_a_task_that_its_id_or_its_program_denies_is_a_fault(change: dict[str, Any]) -> None:
    assert [kind for kind, _ in task_faults(made(**SOUND[0] | change))] == ["task"]


def test_a_file_of_another_name_is_a_fault() -> None:
    assert [kind for kind, _ in task_faults(made(**SOUND[3] | {"name": "b"}))] == ["task"]


def test_a_name_is_read_as_python_reads_it() -> None:
    assert list(task_faults(made(reference_code="class \ufb01n:\n    pass\n", entry_point="fin"))) == []


def rechecked() -> RunInfo:
    """A training run, judged on a CPU, whose verdicts were given again on a GPU."""
    run = _info(GrpoSettings(), "grpo", "run", "cpu")
    return renewed_run(run, BenchSettings(device="cuda"), "elsewhere")


def test_a_training_run_that_was_verified_again_is_sound_on_its_new_device(store: Store) -> None:
    run = rechecked()
    store.replace(RUN_KEY, run.model_dump_json().encode())
    assert not [fault for fault in check(store).faults if fault.part == RUN_KEY]
    assert (rules_of(run).device, rules_of(run).asked_for) == ("cuda", "cpu")
    wrong = run.model_copy(update={"identity": run.identity | {"n-trials": 1}})
    store.replace(RUN_KEY, wrong.model_dump_json().encode())
    assert [fault.kind for fault in check(store).faults if fault.part == RUN_KEY] == ["identity"]
