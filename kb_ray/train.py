"""`python -m kb_ray.train sft|best-of-n|grpo|tritonrl`: train a LoRA adapter on traces or pairs, on its best answers,
by reinforcement, or on pairs and then on its best answers.

Exit code: 0 trained, 1 the loss was no number or a store failed, 2 unusable input, 130 and 143 stopped by Ctrl-C and
SIGTERM: started again it goes on from its last checkpoint.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from kb_ray import cluster
from kb_ray.config_sources import build_parser, parse_command
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.exiting import end, sigterm_as_ctrl_c
from kb_ray.flag_parser import advice, whose
from kb_ray.setting_names import nearest
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.settings import SftSettings
from kb_ray.training.starting import shaped
from kb_ray.training.tracking import board_folder
from kb_ray.training.whole_settings import WholeSettings

_PROG = "python -m kb_ray.train"
COMMANDS: dict[str, type[SftSettings | BestOfNSettings | GrpoSettings | WholeSettings]] = {
    "sft": SftSettings,
    "best-of-n": BestOfNSettings,
    "grpo": GrpoSettings,
    "tritonrl": WholeSettings,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] in (["-h"], ["--help"]):
        print(_help())
        return 0
    if given and given[0].partition("=")[0] == "--stage":
        # As the second document starts it.
        given.insert(0, "tritonrl")
    with sigterm_as_ctrl_c() as exit_code:
        try:
            return _train(given)
        except KbRayError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2 if isinstance(error, ConfigError) else 1
        except KeyboardInterrupt:
            print("stopped: start the same command again to go on from the last checkpoint", file=sys.stderr)
            return exit_code()


def _help() -> str:
    """The commands with a line each, and where the flags of each are listed."""
    width = max(map(len, COMMANDS))
    lines = (f"  {name:{width}}  {' '.join((settings.__doc__ or '').split())}" for name, settings in COMMANDS.items())
    return "\n".join((
        f"usage: {_PROG} COMMAND [--help] [--config FILE.yaml] [flags]", "", *lines, "",
        f"`{_PROG} COMMAND --help` lists the flags of a command, each with default, range and unit.",
        f"`{_PROG} --stage all|sft|rl [flags]` is the command tritonrl too.",
    ))  # fmt: skip


def _train(given: Sequence[str]) -> int:
    command, argv = next(iter(given), None), given[1:]
    if command not in COMMANDS:
        raise ConfigError(_no_command(given))
    settings = parse_command(COMMANDS[command], argv, prog=f"{_PROG} {command}")
    board_folder(settings.tensorboard_enabled, settings.output)
    settings = shaped(settings, _outputs(settings))
    # torch, transformers and Ray are needed from here on only: --help and mistakes do not wait for them.
    if isinstance(settings, SftSettings):
        from kb_ray.training import sft_run

        steps = sft_run.run(settings, _say)
    else:
        cluster.prepare_environment()
        steps = asyncio.run(_reinforced(settings, command))
    where = settings.output
    if isinstance(settings, WholeSettings):
        where = (settings.sft() if settings.stage == "sft" else settings.best_of_n()).output
    print(f"trained:  {steps} steps; python -m kb_ray.evaluate --model-path {where} judges the adapter")
    return 0


def _no_command(given: Sequence[str]) -> str:
    """What is wrong with a command line that does not begin with a command."""
    first = next(iter(given), None)
    if first is None or not first.startswith("-"):
        near = "" if first is None else nearest(first, [*COMMANDS])
        what = "no command is named" if first is None else f"unknown command {first!r}"
        return f"{what}: there are {', '.join(COMMANDS)}{near}; see {_PROG} --help"
    flags = {name: build_parser(settings, name)._option_string_actions for name, settings in COMMANDS.items()}
    chosen = next((word for word in given if word in COMMANDS), "")
    everywhere = dict.fromkeys(flag for known in flags.values() for flag in known)
    near = whose([first], flags, chosen) or advice([first], flags.get(chosen, everywhere))
    where = f"{_PROG} {chosen} --help" if chosen else f"{_PROG} --help"
    return f"{first.partition('=')[0]} stands where a command belongs ({', '.join(COMMANDS)}){near}; see {where}"


def _outputs(settings: SftSettings | BestOfNSettings | GrpoSettings) -> tuple[str, ...]:
    """Where checkpoints of the run lie, once there are some."""
    if isinstance(settings, WholeSettings):
        return settings.sft().output, settings.best_of_n().output
    return (settings.output,)


async def _reinforced(settings: BestOfNSettings | GrpoSettings, command: str) -> int:
    from kb_ray.training import rl_command, whole_run

    if not isinstance(settings, WholeSettings):
        return await rl_command.run(settings, command, _say)
    return await whole_run.run(settings, lambda second: rl_command.run(second, "best-of-n", _say), _say)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    end(main)
