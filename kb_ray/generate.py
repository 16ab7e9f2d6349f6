"""Generate Triton kernels, verify them, send failures back, keep every attempt as Parquet.

`python -m kb_ray.generate`: config, then one start of a run (running.py, where the exit codes are told).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kb_ray import logs
from kb_ray.config import RunConfig
from kb_ray.config_sources import parse_command
from kb_ray.exiting import end
from kb_ray.running import exit_code_of, run


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    logs.setup("text")
    arguments = sys.argv[1:] if argv is None else argv

    async def command() -> int:
        return await run(parse_command(RunConfig, arguments, prog="python -m kb_ray.generate"))

    return exit_code_of(command)


if __name__ == "__main__":
    end(main)
