"""Who answers in an evaluation, and which tasks are wanted: files of kernels, checkpoints, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.evaluation.answering import Selection, answering
from kb_ray.evaluation.options import EvaluateOptions, parse
from kb_ray.extract import extract
from kb_ray.model.completer import Request
from kb_ray.model.sample_files import SampleFiles
from kb_ray.preflight import Planned
from kb_ray.records import Candidate
from tests.unit.score.episodes import episode, ok


def options(*argv: str) -> EvaluateOptions:
    return parse(argv)[0]


def planned(*names: str, samples: int = 1, level: int = 1) -> Planned:
    return [(episode(name, ok(1.0), level=level).task, sample) for name in names for sample in range(samples)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "level_1_problem_3_sample_0_kernel.py").write_text("first = 1\n")
    (folder / "level_1_problem_3_sample_2_kernel.py").write_text("third = 3\n")
    (folder / "generation_config.yaml").write_text("run_name: run\n")
    return folder


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--from", "a", "--model", "b"], "--from and --model exclude each other"),
        (["--compare", "a", "b", "--samples-dir", "c"], "exclude each other"),
        (["compare=a"], "--compare: two stores"),
        (["--format", "csv"], "--format"),
        (["--num-tasks", "0"], "--num-tasks: must be >= 1"),
        (["--gpu-hour-price", "-1"], "--gpu-hour-price: must be >= 0"),
        (["--from", "a", "--tasks", "builtin"], "--from and --tasks exclude each other"),
        (["--from", "a", "samples=3", "--output", "b"], "--from and --output and --samples exclude each other"),
        (["--from", "a", "--vllm-url", "http://h:1/v1"], "--from and --vllm-url exclude each other"),
        (["--model-path", "a", "--vllm-url", "http://h:1/v1"], "--model-path and --vllm-url exclude each other"),
        (["--from", "a", "--dry-run"], "--from and --dry-run exclude each other"),
        (["--compare", "a", "b", "--format", "tritonrl"], "--compare and --format exclude each other"),
        (["--compare", "a", "b", "--tensorboard-log-dir", "c"], "--compare and --tensorboard-log-dir exclude"),
        (["--from", "a", "--tensorboard-step", "3"], "--tensorboard-step: nothing is logged without"),
        (["--from", "a", "--results", "s3://b/p"], "--results: s3://b/p is no local folder"),
        (["--from", "a", "--tensorboard-log-dir", "s3://b/p"], "--tensorboard-log-dir: s3://b/p is no local folder"),
    ],
)
def test_settings_that_cannot_be_met_are_one_line(argv: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        options(*argv)
    assert "\n" not in str(caught.value)


def test_compare_takes_two_stores_after_one_flag() -> None:
    assert options("--compare", "a", "b", "--seed", "1").compare == ("a", "b")
    assert options("--compare", "a", "--compare", "b").compare == ("a", "b")
    assert options("compare=a b").compare == ("a", "b")


def test_the_second_documents_spelling_is_understood() -> None:
    assert options("--model_path", "x_y").model_path == options("--model_path=x_y").model_path == "x_y"
    assert options("--num_tasks", "2", "--model_name", "m").num_tasks == 2
    assert options("compare=a", "--seed", "1", "compare=b").compare == ("a", "b")
    assert options("compare=a", "--exclude-flagged", "compare=b").compare == ("a", "b")
    assert options("level=1", "level=2 3").level == (1, 2, 3)
    # a flag's own value is not an assignment
    assert options("--column", "level=a", "--column", "level=b").column == ("level=a", "level=b")


def test_what_the_environment_sets_for_every_command_stands_in_no_ones_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_RAY_VLLM_URL", "http://h:1/v1")
    monkeypatch.setenv("KB_RAY_SAMPLES", "3")
    assert options("--from", "a").source_store == "a"
    assert options("--model-path", "a").samples == 3
    with pytest.raises(ConfigError, match="--from and --samples exclude"):
        options("--from", "a", "--samples", "2")


def test_results_lie_beside_a_local_store() -> None:
    assert options("--from", "x/y").results_folder == Path("x/y/evaluation")
    assert options("--from", "s3://b/p").results_folder == Path("evaluation")
    assert options("--from", "x", "--results", "r").results_folder == Path("r")


def test_kernelbench_is_evaluated_where_nothing_else_is_named() -> None:
    assert answering(options())[0].tasks == ("kernelbench",)
    assert answering(options("level=1 2"))[0].tasks == ("kernelbench:1,2",)
    assert answering(options("--tasks", "builtin"))[0].tasks == ("builtin",)


def test_the_first_tasks_are_taken_with_all_their_samples() -> None:
    selection = Selection(options("--num-tasks", "2"))
    kept = selection(planned("a", "b", "c", samples=2))
    assert [(task.name, sample) for task, sample in kept] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert selection.wanted("kernelbench/1/b", 1)
    assert not selection.wanted("kernelbench/1/c", 0)


def test_a_level_that_no_task_has_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--level 3 leaves none"):
        Selection(options("--level", "3"))(planned("a"))


def test_files_say_which_levels_and_how_many_samples(files: Path) -> None:
    settings, completer, selection = answering(options("--samples-dir", str(files)))
    assert (settings.tasks, settings.samples, settings.turns) == (("kernelbench:1",), 3, 1)
    assert completer is not None
    kept = selection(planned("3_Batched", "4_Other", samples=3))
    assert [(task.name, sample) for task, sample in kept] == [("3_Batched", sample) for sample in range(3)]
    with pytest.raises(ConfigError, match="for none of the planned problems"):
        selection(planned("33_Other"))


@pytest.mark.parametrize(
    "flags", [["--multi-turn"], ["--temperature", "0.2"], ["--max-turns", "2", "--prompt", "terse"], ["--retry-failed"]]
)
def test_what_only_a_model_would_heed_is_refused_beside_files(files: Path, flags: list[str]) -> None:
    names = " and ".join(sorted(flag for flag in flags if flag.startswith("--")))
    with pytest.raises(ConfigError, match=f"--samples-dir and {names} exclude each other: its files are the answers"):
        options("--samples-dir", str(files), *flags)


def test_what_the_environment_says_of_models_does_nothing_to_files(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_RAY_MULTI_TURN", "true")
    assert answering(options("--samples-dir", str(files)))[0].turns == 1


def test_another_number_of_samples_than_there_are_files_is_refused(files: Path) -> None:
    assert answering(options("--samples-dir", str(files), "--samples", "3"))[0].samples == 3
    with pytest.raises(ConfigError, match=r"--samples: the files of .* are 3 samples of a task"):
        answering(options("--samples-dir", str(files), "--samples", "2"))


async def test_a_file_is_the_answer_and_a_missing_one_is_empty(files: Path) -> None:
    player = SampleFiles(str(files))
    texts = [
        (await player.complete(Request(messages=(), task_id="kernelbench/1/3_Batched", sample=sample))).text
        for sample in range(3)
    ]
    assert texts == ["first = 1\n", "", "third = 3\n"]


@pytest.mark.parametrize(
    "code",
    [
        "def triton_kernel_wrapper(x):\n    return x\ndef (:\n",
        ">>> import triton\n",
        "x = 1 # </triton>\n",
        "+import a\n",
    ],
)
async def test_a_file_is_judged_as_it_is(files: Path, code: str) -> None:
    (files / "level_1_problem_3_sample_0_kernel.py").write_text(code)
    answer = await SampleFiles(str(files)).complete(Request(messages=(), task_id="kernelbench/1/3_Batched"))
    found = extract(answer)
    assert isinstance(found, Candidate)
    assert (found.code, found.rule) == (code, "file")


def test_other_kernels_in_the_same_folder_are_another_model(files: Path) -> None:
    before = SampleFiles(str(files)).model
    (files / "level_1_problem_3_sample_0_kernel.py").write_text("first = 2\n")
    assert SampleFiles(str(files)).model != before


def test_a_folder_or_a_link_to_nothing_that_is_named_like_a_kernel_is_one_line(files: Path) -> None:
    odd = files / "level_1_problem_4_sample_0_kernel.py"
    for make in (odd.mkdir, lambda: odd.symlink_to("nowhere")):
        make()
        with pytest.raises(ConfigError, match=r"--samples-dir: .*problem_4_sample_0_kernel.py is no file") as caught:
            SampleFiles(str(files))
        assert "\n" not in str(caught.value)
        odd.rmdir() if odd.is_dir() else odd.unlink()


@pytest.mark.parametrize("flag", ["--samples-dir", "--model-path"])
def test_a_folder_without_what_it_should_hold_is_refused(tmp_path: Path, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        answering(options(flag, str(tmp_path)))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["level_1_problem_1_sample_99999999_kernel.py"], "a sample's number must be below 10000"),
        (["level_1_problem_1_sample_10000_kernel.py"], "a sample's number must be below 10000"),
        (
            ["level_01_problem_1_sample_0_kernel.py", "level_1_problem_01_sample_0_kernel.py"],
            "level_1_problem_01_sample_0_kernel.py are one sample of one problem",
        ),
    ],
)
def test_files_whose_names_make_no_sense_together_are_refused(tmp_path: Path, names: list[str], said: str) -> None:
    for name in names:
        (tmp_path / name).write_text("x = 1\n")
    with pytest.raises(ConfigError, match=said):
        SampleFiles(str(tmp_path))
