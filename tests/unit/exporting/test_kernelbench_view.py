"""The view kernelbench: what KernelBench's evaluation of generations finds, level by level, sample by sample."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kb_ray.errors import ConfigError
from kb_ray.export import main
from kb_ray.exporting.kernelbench import defines_entry
from kb_ray.exporting.making import Made, make
from kb_ray.exporting.options import ExportOptions, Filters
from kb_ray.records import Episode, StopReason, Task
from kb_ray.traces.reading import survey
from tests.unit.exporting.stories import store_of, story, task

KERNEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    told = {0!r}\n"


def problem(level: int = 1, number: int = 19, name: str = "ReLU") -> Task:
    return task(f"{level}/{number}_{name}", source="kernelbench", level=level, number=number)


def told(*words: str, of: Task, sample: int = 0, attempt: int = 1, stop: StopReason | None = None) -> Episode:
    """A story whose kernels say which they are: sample and word."""
    found = story(*words, of=of, sample=sample, attempt=attempt, stop=stop)
    turns = tuple(
        turn.model_copy(update={"triton_code": KERNEL.format(f"{sample} {word}")}) if turn.triton_code else turn
        for turn, word in zip(found.turns, words, strict=True)
    )
    return found.model_copy(update={"turns": turns})


def exported(folder: Path, *episodes: Episode, filters: Filters = Filters()) -> Made:  # noqa: B008 - it is frozen
    found = survey(store_of(folder / "store", *episodes))
    return make(found, ExportOptions("kernelbench", filters), folder / "out", command="c")


def kernels(folder: Path) -> dict[str, str]:
    """File -> which kernel it is."""
    files = sorted((folder / "out").rglob("*.py"))
    return {path.relative_to(folder / "out").as_posix(): path.read_text().split("'")[1] for path in files}


def test_each_level_has_a_folder_of_its_own_since_results_name_problems_and_no_level(tmp_path: Path) -> None:
    exported(tmp_path, told("fast", of=problem(1)), told("slow", of=problem(2, 19, "Other")))
    assert kernels(tmp_path) == {
        "level1/level_1_problem_19_sample_0_kernel.py": "0 fast",
        "level2/level_2_problem_19_sample_0_kernel.py": "0 slow",
    }


def test_samples_that_training_numbered_on_begin_with_0_for_each_problem(tmp_path: Path) -> None:
    other = problem(1, 20)
    exported(
        tmp_path,
        *(told("fast", of=problem(), sample=sample) for sample in (0, 1)),
        *(told("fast", of=other, sample=sample) for sample in (3, 2)),
    )
    assert kernels(tmp_path) == {
        "level1/level_1_problem_19_sample_0_kernel.py": "0 fast",
        "level1/level_1_problem_19_sample_1_kernel.py": "1 fast",
        "level1/level_1_problem_20_sample_0_kernel.py": "2 fast",
        "level1/level_1_problem_20_sample_1_kernel.py": "3 fast",
    }


def test_what_our_side_failed_is_left_out_counted_and_takes_no_number(tmp_path: Path) -> None:
    made = exported(
        tmp_path,
        told("fast", of=problem(), stop=StopReason.INFRA_ERROR),
        told("slow", of=problem(), sample=1),
        told("fast", of=problem(), sample=2, stop=StopReason.MODEL_ERROR),
    )
    assert kernels(tmp_path) == {"level1/level_1_problem_19_sample_0_kernel.py": "1 slow"}
    assert "2 episodes that our side or the model's server failed" in made.account


def test_a_judged_answer_without_a_file_takes_a_number_so_that_it_is_wrong_there_too(tmp_path: Path) -> None:
    exported(tmp_path, told("blank", of=problem()), told("fast", of=problem(), sample=1))
    assert list(kernels(tmp_path)) == ["level1/level_1_problem_19_sample_1_kernel.py"]


def test_a_second_try_replaces_no_answer(tmp_path: Path) -> None:
    of = problem()
    exported(
        tmp_path,
        told("wrong", of=of),
        told("fast", of=of, attempt=2),
        told("broken", of=of, sample=1),
        told(of=of, sample=1, attempt=2, stop=StopReason.INFRA_ERROR),
    )
    assert list(kernels(tmp_path).values()) == ["0 wrong", "1 broken"]


def test_two_tasks_that_are_one_problem_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    twins = [told("fast", of=problem()), told("wrong", of=problem(name="ReLU_old"))]
    with pytest.raises(ConfigError, match=r"--view kernelbench: .* are both problem 19 of level 1"):
        exported(tmp_path, *twins)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    # Levels that are not asked for stand in no one's way.
    other = told("fast", of=problem(2))
    store = store_of(tmp_path / "more", *twins, other)
    made = make(
        survey(store), ExportOptions("kernelbench", Filters(level=frozenset({2}))), tmp_path / "two", command="c"
    )
    assert made.rows == 1


@pytest.mark.parametrize(
    ("code", "defined"),
    [
        ("class ModelNew:\n    pass\n", True),
        ("class M:\n    pass\n\nModelNew = M\n", True),
        ("if True:\n    class ModelNew:\n        pass\n", True),
        ('"""\nclass ModelNew is told of here\n"""\ndef triton_kernel_wrapper(x):\n    return x\n', False),
        ("def make():\n    class ModelNew:\n        pass\n", False),
        ("class ModelNew:\n    def forward(self, x)\n        return x\n", True),
        ("def f(:\n", False),
    ],
)
def test_a_program_defines_the_entry_where_its_module_binds_it(code: str, *, defined: bool) -> None:
    assert defines_entry(code) is defined


def test_the_card_counts_tasks_and_has_kernelbenchs_licence(tmp_path: Path) -> None:
    made = exported(tmp_path, *(told("fast", of=problem(), sample=sample) for sample in range(3)))
    _, head, body = (made.folder / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head)["license"] == "mit"
    assert "3 rows of 1 tasks" in body
    assert "Answers by `tiny`." in body
    assert "| kernelbench | mit |" in body


def test_a_licence_that_the_user_knows_is_taken(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", told("fast", of=problem()))
    argv = [
        store.uri,
        "--view",
        "kernelbench",
        "--output",
        str(tmp_path / "out"),
        "--license",
        "kernelbench=bsd-3-clause",
    ]
    assert main(argv) == 0
    assert "| kernelbench | bsd-3-clause |" in (tmp_path / "out" / "README.md").read_text()


def test_what_kernelbench_found_is_not_lost_by_overwriting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = store_of(tmp_path / "store", told("fast", of=problem()))
    argv = [store.uri, "--view", "kernelbench", "--output", str(tmp_path / "out"), "--overwrite"]
    assert main(argv) == 0
    assert main(argv) == 0
    (tmp_path / "out" / "level1" / "eval_results.json").write_text("{}")
    capsys.readouterr()
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert "level1/eval_results.json of KernelBench's evaluation, which would be lost: move that away" in said
    (tmp_path / "out" / "level1" / "eval_results.json").rename(tmp_path / "eval_results.json")
    assert main(argv) == 0
