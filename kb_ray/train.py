"""`python -m kb_ray.train sft`: train a LoRA adapter on what trace stores hold.

Exit code: 0 trained, 1 the loss was no number or a store failed, 2 unusable input, 130 stopped by Ctrl-C: started
again it goes on from its last checkpoint.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from kb_ray.config_sources import parse_command
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.training.settings import SftSettings

_USAGE = "usage: python -m kb_ray.train sft [--help] [--config FILE.yaml] [flags]"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not given or given[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if given else 2
    try:
        return _train(given[0], given[1:])
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print("stopped: start the same command again to go on from the last checkpoint", file=sys.stderr)
        return 128 + signal.SIGINT


def _train(command: str, argv: Sequence[str]) -> int:
    if command != "sft":
        raise ConfigError(f"unknown command {command!r}: there is sft")
    settings = parse_command(SftSettings, argv, prog="python -m kb_ray.train sft")
    # torch and transformers are needed from here on only: --help and mistakes do not wait for them.
    from kb_ray.training import sft_run

    steps = sft_run.run(settings, lambda line: print(line, flush=True))
    print(f"trained:  {steps} steps; python -m kb_ray.evaluate --model-path {settings.output} judges the adapter")
    return 0


if __name__ == "__main__":
    sys.exit(main())
