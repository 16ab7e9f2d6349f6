"""Plays kernels that KernelBench's generate_samples.py wrote: the answer to a problem is the file of its sample.

Reads `level_L_problem_P_sample_S_kernel.py` in one folder. A sample without a file was not generated there; its
answer is empty, which becomes the verdict `no_code`. Judges nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from kb_ray.errors import ConfigError, ModelError
from kb_ray.extract import WHOLE_FILE
from kb_ray.model.completer import ModelInfo, Request
from kb_ray.records import Completion, Message, Task

MAX_SAMPLES = 10_000
"""As many as --samples may ask for; every number up to the highest is an episode of each problem."""
_NAME = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_PROBLEM = re.compile(r"kernelbench/(\d+)/(\d+)(?:_|$)")


class SampleFiles:
    """A Completer. Samples are those of the files; turns after the first have no answer of their own."""

    window: int | None = None

    def __init__(self, folder: str) -> None:
        """ConfigError where the folder holds no such file, or one that cannot be read."""
        self._folder = Path(os.path.expanduser(folder))
        if not self._folder.is_dir():
            raise ConfigError(f"--samples-dir: {folder} is no folder")
        self._files: dict[tuple[int, int, int], Path] = {}
        for path in self._paths():
            if found := _NAME.fullmatch(path.name):
                self._take((int(found[1]), int(found[2]), int(found[3])), path)
        if not self._files:
            raise ConfigError(
                f"--samples-dir: {folder} holds no level_L_problem_P_sample_S_kernel.py, as generate_samples.py writes"
            )
        # A folder or a link to nothing of such a name is somebody's mistake, not a sample that is missing.
        odd = next((path for path in self._files.values() if not path.is_file()), None)
        if odd is not None:
            raise ConfigError(f"--samples-dir: {odd} is no file: remove it, or put the kernel there")
        # Judging other files under the same name would mix two sets of kernels in one store.
        self.model = f"files:{self._folder.resolve().name}@{self._digest()}"

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of the files, ascending."""
        return tuple(sorted({level for level, _, _ in self._files}))

    @property
    def samples(self) -> int:
        """Samples of a problem: one more than the highest number."""
        return 1 + max(sample for _, _, sample in self._files)

    def has(self, task: Task) -> bool:
        """Whether the task's problem has a file, of whichever sample."""
        place = _place(task.task_id)
        return place is not None and any((level, problem) == place for level, problem, _ in self._files)

    async def check(self) -> ModelInfo:
        """Which files these are."""
        return ModelInfo(model=self.model, in_process=True)

    async def complete(self, request: Request) -> Completion:
        """The file as it is, or an empty answer. ModelError where a file cannot be read."""
        place = _place(request.task_id)
        path = self._files.get((*place, request.sample)) if place else None
        try:
            code = path.read_text(encoding="utf-8", errors="replace") if path else None
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        return Completion(text=code or "", finish_reason=WHOLE_FILE, model=self.model, sampling=request.sampling)

    async def count_tokens(self, messages: Sequence[Message]) -> int | None:
        """Nothing: no prompt is read."""
        return 0

    async def aclose(self) -> None:
        """Nothing to free."""

    def _take(self, place: tuple[int, int, int], path: Path) -> None:
        known = self._files.setdefault(place, path)
        if known != path:
            raise ConfigError(
                f"--samples-dir: {known} and {path.name} are one sample of one problem: remove one of them"
            )
        if place[2] >= MAX_SAMPLES:
            raise ConfigError(f"--samples-dir: {path}: a sample's number must be below {MAX_SAMPLES}, rename it")

    def _paths(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except OSError as error:
            raise ConfigError(f"--samples-dir: {self._folder} cannot be read: {error.strerror or error}") from error

    def _digest(self) -> str:
        found = hashlib.sha256()
        for path in self._files.values():
            try:
                found.update(path.name.encode() + b"\0" + path.read_bytes())
            except OSError as error:
                raise ConfigError(f"--samples-dir: {path} cannot be read: {error.strerror or error}") from error
        return found.hexdigest()[:8]


def _place(task_id: str) -> tuple[int, int] | None:
    """(level, problem) of a KernelBench task's id."""
    found = _PROBLEM.match(task_id)
    return (int(found[1]), int(found[2])) if found else None
