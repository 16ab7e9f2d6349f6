"""The configurations in jobs/ hold the values of the second and third document, and their names are all understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kb_ray import env_vars
from kb_ray.config_sources import parse_command
from kb_ray.errors import ConfigError
from kb_ray.score.reward import PRESETS
from kb_ray.train import COMMANDS
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.settings import SftSettings
from kb_ray.training.whole_settings import WholeSettings

JOBS = Path(__file__).parents[3] / "jobs"
THIRD = {
    "model_name": "Qwen/Qwen2.5-Coder-7B-Instruct", "level": (1,), "batch_size": 4, "group_size": 4,
    "learning_rate": 1e-4, "lora_rank": 32, "max_tokens": 4096, "temperature": 1.0, "mode": "single_turn",
    "tensorboard_enabled": True, "tensorboard_log_histograms_every": 5, "tensorboard_log_per_level": True,
}  # fmt: skip
EXAMPLES = {"prompt_option": "raicl", "rag_index_path": "./kernel_rag_index", "raicl_k": 3}
KEVIN = {"mode": "multi_turn", "max_turns": 4, "gamma": 0.4, "reward": "kevin"}


@pytest.fixture(autouse=True)
def _outside_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the machine that runs the tests must not reach them."""
    monkeypatch.chdir(tmp_path)
    for name in {name for kind in COMMANDS.values() for name in kind.model_fields}:
        monkeypatch.delenv(env_vars.SETTING_PREFIX + name.upper(), raising=False)


def parsed(command: str, *arguments: str) -> Any:
    return parse_command(COMMANDS[command], arguments, prog="train")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("rl_kernelbench", THIRD | {"output": "./runs/kernel_rl_v1", "prompt_option": "default"}),
        ("rl_kernelbench_raicl", THIRD | EXAMPLES | {"output": "./runs/raicl_experiment"}),
        ("rl_kernelbench_kevin", THIRD | EXAMPLES | KEVIN | {"output": "./runs/kevin_experiment"}),
    ],
)
def test_the_third_documents_configurations_hold_its_values(file: str, expected: dict[str, Any]) -> None:
    found = parsed("grpo", "--config", str(JOBS / f"{file}.yaml"))
    assert {name: getattr(found, name) for name in expected} == expected


def test_its_stages_and_its_command_lines_are_understood() -> None:
    config = ("--config", str(JOBS / "rl_kernelbench_raicl.yaml"))
    found = parsed("grpo", *config, "mode=multi_turn", "max_turns=4", "gamma=0.4", "log_path=./runs/my_kevin_run")
    assert (found.rule().max_turns, found.gamma, found.output) == (4, 0.4, "./runs/my_kevin_run")
    for stage, weights in {
        "stage1": ("format=0.3", "compile=0.5", "correctness=0.2"),
        "stage2": ("format=0.1", "compile=0.2", "correctness=0.7"),
        "stage3": ("format=0.05", "compile=0.1", "correctness=0.5", "speed=0.35"),
    }.items():
        given = [f"dataset_builder.reward_{part.replace('=', '_weight=')}" for part in weights]
        settings = parsed("grpo", *given, "dataset_builder.measure_performance=true")
        rule = settings.reward_rule()
        assert (rule.scheme, rule.weights) == ("weighted", PRESETS[stage])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--reward", "kevin", "reward_speed_weight=0.3"), "--reward-speed-weight does nothing with --reward kevin"),
        (("--reward", "staged", "--reward-stages"), "--reward-stages does nothing with --reward staged"),
        (
            ("--config", str(JOBS / "rl_kernelbench.yaml"), "reward_speed_weight=0.3"),
            "does nothing with --reward-stages",
        ),
    ],
)
def test_a_weight_that_would_do_nothing_is_refused(given: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parsed("grpo", *given)


def test_schemes_are_those_of_their_documents_unless_weights_are_named() -> None:
    assert [parsed(command).reward for command in ("grpo", "best-of-n", "tritonrl")] == ["kevin", "staged", "staged"]
    assert parsed("best-of-n", "reward_format_weight=0.2").reward == "weighted"
    assert parsed("grpo", "--reward-stages").reward_rule().scheme == "weighted"


def test_the_second_documents_run_has_its_values_in_both_stages() -> None:
    whole: WholeSettings = parsed("tritonrl", "--config", str(JOBS / "tritonrl_budget.yaml"), "--stage", "all")
    sft, best = whole.sft(), whole.best_of_n()
    lora = sft.learning(1).lora
    assert (sft.model_name, sft.data, sft.samples, sft.epochs, sft.per_device_batch_size, sft.load_in_8bit) == (
        "Qwen/Qwen2.5-Coder-7B-Instruct", ("kernelbook",), 1000, 1, 2, True,
    )  # fmt: skip
    assert (lora.rank, lora.alpha, lora.dropout) == (16, 32, 0.05)
    assert lora.target_modules == (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip
    assert (best.group_size, best.keep, best.level, best.reward) == (10, 3, (2,), "staged")
    assert 10 <= best.batch_size * best.steps <= 100
    assert (best.curriculum, best.curriculum_start_p, best.curriculum_end_p, best.curriculum_trigger_threshold) == (
        True, 0.1, 0.5, 0.4,
    )  # fmt: skip
    bench = best.bench("cuda")
    assert (bench.n_correctness, bench.n_warmup, bench.n_trials) == (5, 10, 50)
    assert (sft.output, best.start_from, best.output) == ("./checkpoints/sft", "./checkpoints/sft", "./checkpoints/rl")
    assert best.learning(None).lora == lora


@pytest.mark.parametrize("kind", [SftSettings, BestOfNSettings, GrpoSettings, WholeSettings])
def test_other_names_lead_to_settings_that_exist(kind: type[Any]) -> None:
    whole = {*WholeSettings.model_fields, *GrpoSettings.model_fields}
    assert set(kind.other_names.values()) <= whole | set(kind.model_fields)
    assert set(kind.fixed) & whole == set()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("timing_use_events=false", "timing_use_events: can only be true here"),
        ("extensions.enable_staged_eval=no", "enable_staged_eval: can only be true"),
        ("device_map=cpu", "device_map: can only be auto here: the learner places the model"),
        ("builder.raicl_k=3", "unknown setting 'builder.raicl_k'"),
        ("per_device_batch_size=2", "unknown setting 'per_device_batch_size'"),
    ],
)
def test_a_setting_without_a_choice_here_is_refused_in_one_line(argument: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parsed("grpo", argument)
    assert "\n" not in str(caught.value)


def test_a_group_in_yaml_is_no_setting_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("dataset_builder: 3\n")
    with pytest.raises(ConfigError, match="unknown setting 'dataset_builder'"):
        parsed("grpo", "--config", "c.yaml")
