"""KernelBench's problems: a level and a number, by which its own files know a task. Two tasks cannot share one.

Pure; knows neither files nor verdicts.
"""

from __future__ import annotations

from kb_ray.errors import ConfigError

Place = tuple[int, int]
"""(level, number)."""


class Problems:
    """The problems met so far. `asked_by` is the flag in whose name two tasks that are one problem are refused."""

    def __init__(self, asked_by: str) -> None:
        self._asked_by = asked_by
        self._tasks: dict[Place, str] = {}

    def place(self, task_id: str, source: str, level: int | None, problem_id: int | None) -> Place | None:
        """Where KernelBench has this task; None where it has none. ConfigError where it is another task's place."""
        if source != "kernelbench" or level is None or problem_id is None:
            return None
        known = self._tasks.setdefault((level, problem_id), task_id)
        if known != task_id:
            raise ConfigError(
                f"{self._asked_by}: {known} and {task_id} are both problem {problem_id} of level {level}, "
                "keep them in stores apart"
            )
        return level, problem_id
