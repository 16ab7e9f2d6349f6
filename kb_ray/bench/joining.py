"""Joins Ray for a command that is run among candidates, so that no file beside them is taken for a module.

Ray puts the folder in which a job's driver joins it first on the path of the job's processes: `pydantic.py` there would
be run by them, outside any sandbox. Does not know what is evaluated.
"""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

from kb_ray.errors import InfraError


def join() -> None:
    """The pool's front of this process's job, joined from the folder that kb_ray is imported from; InfraError where Ray
    fails. Before there are threads: a process has one working folder."""
    # Ray is needed by who evaluates on it alone.
    from kb_ray.bench.actor import one_line
    from kb_ray.bench.front import front

    try:
        with chdir(Path(__file__).parents[2]):
            front()
    # Ray raises bare exceptions where a node does not come up or versions differ.
    except Exception as error:
        raise InfraError(f"Ray cannot be joined: {one_line(error)}") from error
