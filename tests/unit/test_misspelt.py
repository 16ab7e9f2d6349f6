"""A misspelt name is told as one: before what is missing for its sake, wherever it stands, in the environment too, and
with another name only where that is near."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from kb_ray import export, report, status, train
from kb_ray.config import RunConfig
from kb_ray.config_sources import parse_command
from kb_ray.doctor import DoctorConfig
from kb_ray.env_vars import SETTING_PREFIX
from kb_ray.errors import ConfigError
from kb_ray.evaluation.options import EvaluateConfig, parse
from kb_ray.flag_parser import FlagParser
from kb_ray.serve_file import find
from kb_ray.setting_names import misspelt_variable, near
from kb_ray.tasks import __main__ as tasks

CONFIGS: dict[str, type[BaseModel]] = {
    "generate": RunConfig, "doctor": DoctorConfig, "evaluate": EvaluateConfig, **train.COMMANDS,
}  # fmt: skip
TRAIN = "stands where a command belongs (sft, best-of-n, grpo, tritonrl)"


@pytest.fixture(autouse=True)
def _outside_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for model in CONFIGS.values():
        for name in model.model_fields:
            monkeypatch.delenv(SETTING_PREFIX + name.upper(), raising=False)


@pytest.mark.parametrize(
    ("command", "argv", "said"),
    [
        (export, "store --veiw sft", "unrecognized arguments: --veiw; did you mean --view?"),
        (export, "--view=sft --ouput=x", "unrecognized arguments: --ouput=x; did you mean --output?"),
        (report, "--prot=1 --live", "unrecognized arguments: --prot=1; did you mean --port?"),
        (report, "--no-liev", "unrecognized arguments: --no-liev"),
        (status, "--wacth=3", "unrecognized arguments: --wacth=3; did you mean --watch?"),
        (status, "--store=x", "unrecognized arguments: --store=x; STORE is given without a flag"),
        (tasks, "--lmit 3 check builtin", "unrecognized arguments: --lmit; did you mean --limit?"),
        (tasks, "--limit 3 check builtin", "unrecognized arguments: --limit; --limit goes after check"),
        (tasks, "check --lmit 3", "unrecognized arguments: --lmit; did you mean --limit?"),
        (tasks, "--json=x", "unrecognized arguments: --json=x; --json is a flag of check"),
        (train, "--modle-name x sft", f"--modle-name {TRAIN}; did you mean --model-name?"),
        (train, "--model-name=x sft", f"--model-name {TRAIN}; --model-name goes after sft"),
        (train, "--modle-name=x", f"--modle-name {TRAIN}; did you mean --model-name?"),
        (train, "tritonlr", "unknown command 'tritonlr': there are sft, best-of-n, grpo, tritonrl; did you mean"),
    ],
)
def test_a_misspelt_flag_is_told_before_what_is_missing_and_wherever_it_stands(
    command: object, argv: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(argv.split()) == 2  # type: ignore[attr-defined]
    told = capsys.readouterr()
    assert told.err.startswith(f"error: {said}")
    assert (told.err.count("\n"), told.out) == (1, "")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--colour", "red"], "the following arguments are required: --size, what"),
        (["--colour", "--b c", "--size", "1"], "the following arguments are required: what"),
        (["--col", "red"], "the following arguments are required: --size, what"),
        (["--size", "1", "--colour"], "--colour: expected one argument"),
        (["--size", "x", "--", "--colr"], "--size: invalid int value: 'x'"),
    ],
)
def test_what_is_no_flag_or_one_that_is_there_hides_nothing(argv: list[str], said: str) -> None:
    parser = FlagParser(prog="tool")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--colour")
    parser.add_argument("what")
    with pytest.raises(ConfigError) as raised:
        parser.parse_args(argv)
    assert str(raised.value) == f"{said}; see tool --help"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("--quiet", ("--set", "--output"), None),
        ("--resume", ("--set", "--tasks", "--help"), None),
        ("--lr", ("--help", "--learner", "--port"), None),
        ("--data", ("--tasks", "--updates"), None),
        ("--fast", ("--set",), None),
        ("--k", ("--tasks", "--raicl-k"), None),
        ("--modle", ("--mode-of", "--model"), "--model"),
        ("--seeds", ("--speed", "--seed"), "--seed"),
        ("--out", ("--set", "--output"), "--output"),
        ("--turns", ("--tensor", "--max-turns"), "--max-turns"),
        ("--model-name", ("--model", "--top-p"), "--model"),
        ("queue", ("queue_limit", "name"), "queue_limit"),
        ("H1000", ("A100", "H100"), "H100"),
    ],
)
def test_only_what_is_near_is_asked_after(name: str, known: tuple[str, ...], meant: str | None) -> None:
    assert near(name, known) == meant


def test_a_deployment_that_nothing_is_like_is_answered_with_all() -> None:
    with pytest.raises(ConfigError, match=r"no deployment llama-3: pass a YAML file, a checkpoint, or one of: .*glm45"):
        find("llama-3")
    with pytest.raises(ConfigError, match=r"no deployment glm-45: did you mean glm45_air\?"):
        find("glm-45")


def warned(capsys: pytest.CaptureFixture[str], model: type[BaseModel] = RunConfig) -> str:
    parse_command(model, (), prog="tool")
    return capsys.readouterr().err


def test_a_misspelt_variable_is_told_and_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KB_RAY_MAX_TURN", "3")
    monkeypatch.setenv("KB_RAY_MODLE", "")
    told = "warning: KB_RAY_MAX_TURN is no setting and does nothing; did you mean KB_RAY_MAX_TURNS?\n"
    assert warned(capsys) == told
    parse(())
    assert capsys.readouterr().err == told, "once, however often a command reads its settings"
    assert warned(capsys, DoctorConfig) == "", "far from all that it has"
    monkeypatch.delenv("KB_RAY_MAX_TURN")
    Path(".env").write_text("KB_RAY_MODLE=x\nKB_RAY_BATCHSIZE=2\n")
    assert "KB_RAY_BATCHSIZE is no setting and does nothing; did you mean KB_RAY_BATCH_SIZE?" in warned(capsys)


def test_what_others_call_so_is_not_taken_for_misspelt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CHAOS_SEED", "CHAOS_ROUNDS", "SMOLLM2", "GLM45_AIR", "QWEN25_CODER_7B", "GPT_OSS_120B", "QWEN3_235B"):
        monkeypatch.setenv(SETTING_PREFIX + name, "7")
    for model in CONFIGS.values():
        assert {name for name in CONFIGS if (warned(capsys, model))} == set()


@pytest.mark.parametrize("command", CONFIGS)
def test_a_setting_of_one_command_is_no_misspelt_one_of_another(command: str) -> None:
    others = {name for model in CONFIGS.values() for name in model.model_fields}
    found = {name: misspelt_variable(SETTING_PREFIX + name.upper(), CONFIGS[command]) for name in others}
    assert {name: meant for name, meant in found.items() if meant} == {}
