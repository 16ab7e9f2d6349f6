"""What the command of training says of its commands, and what it advises where the command of two stages failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kb_ray import train
from kb_ray.errors import ConfigError
from kb_ray.learn.stepping import under_another_output
from kb_ray.training import whole_run
from kb_ray.training.rl_settings import BestOfNSettings
from tests.unit.training.test_whole_run import best_of_n, settings


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_each_command_in_a_line_and_where_its_flags_are(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main([flag]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for name, kind in train.COMMANDS.items():
        (line,) = (line for line in shown.out.splitlines() if line.split()[:1] == [name])
        assert line.split(maxsplit=1)[1] == " ".join((kind.__doc__ or "").split())
    assert "`python -m kb_ray.train COMMAND --help` lists the flags" in shown.out


@pytest.mark.parametrize("argv", [[], ["dance"]])
def test_no_command_and_an_unknown_one_are_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: unknown command 'dance': " if argv else "error: no command is named: ")
    assert shown.err.endswith("there are sft, best-of-n, grpo, tritonrl; see python -m kb_ray.train --help\n")


def test_a_missing_package_of_tensorboard_is_told_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    given = ["--model-name", "none", "--data", str(tmp_path / "none"), "--output", str(tmp_path / "run")]
    assert train.main(["sft", *given]) == 2
    assert capsys.readouterr().err.startswith("error: TensorBoard's files need a package (")
    assert not (tmp_path / "run").exists()


async def test_what_is_advised_after_a_failed_step_can_be_done_after_one_of_tritonrl(
    tmp_path: Path, begun: list[str]
) -> None:
    """Its stages are runs of their own below OUTPUT: `--start-from OUTPUT` would find nothing there."""
    whole, run = settings(tmp_path), tmp_path / "run"
    assert await whole_run.run(whole, best_of_n, print, "cpu") > 3
    begun.clear()
    lower = {"output": str(tmp_path / "other"), "learning_rate": 1e-3}
    of_output = whole.model_copy(update=lower | {"stage": "sft", "start_from": str(run)})
    with pytest.raises(ConfigError, match="run holds no adapter"):
        await whole_run.run(of_output, best_of_n, print, "cpu")

    assert "--start-from this one (of tritonrl: OUTPUT/sft, or by the command best-of-n OUTPUT/rl)" in (
        under_another_output(1)
    )
    of_stage = of_output.model_copy(update={"start_from": str(run / "sft")})
    assert await whole_run.run(of_stage, best_of_n, print, "cpu") == 3
    second = {"output": str(tmp_path / "best"), "start_from": str(run / "rl"), "learning_rate": 1e-3, "steps": 1}
    given = whole.model_dump(include=set(BestOfNSettings.model_fields)) | second
    await best_of_n(BestOfNSettings.model_validate(given))
    assert begun == [str(run), str(run / "sft"), str(run / "rl")]
