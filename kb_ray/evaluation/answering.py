"""Who answers in an evaluation, and which of the planned episodes are wanted.

Turns settings into a completer and a selection; runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kb_ray.errors import ConfigError
from kb_ray.evaluation.options import EvaluateOptions
from kb_ray.evaluation.problems import Problems
from kb_ray.local_checkpoints import is_checkpoint
from kb_ray.model.completer import Completer
from kb_ray.preflight import Planned
from kb_ray.records import Task


@dataclass
class Selection:
    """Takes what is wanted of a plan, and remembers it, so that metrics are over just that."""

    options: EvaluateOptions
    files: Completer | None = None
    """The files that answer, with --samples-dir."""
    chosen: set[tuple[str, int]] = field(default_factory=set)
    """(task_id, sample) of the plan that is run."""

    def __call__(self, planned: Planned) -> Planned:
        """The wanted part of a plan. ConfigError where that is nothing, or --format kernelbench could not tell it."""
        kept = planned
        if self.options.level:
            kept = [(task, sample) for task, sample in kept if task.level in self.options.level]
            if not kept:
                raise ConfigError(f"--level {' '.join(map(str, self.options.level))} leaves none of the planned tasks")
        kept = self._with_files(kept)
        if self.options.num_tasks is not None:
            first = set(list(dict.fromkeys(task.task_id for task, _ in kept))[: self.options.num_tasks])
            kept = [(task, sample) for task, sample in kept if task.task_id in first]
        if "kernelbench" in self.options.format:
            _check_problems([task for task, _ in kept])
        self.chosen = {(task.task_id, sample) for task, sample in kept}
        return kept

    def wanted(self, task_id: str, sample: int) -> bool:
        """Whether an episode belongs to what was planned."""
        return (task_id, sample) in self.chosen

    def _with_files(self, planned: Planned) -> Planned:
        from kb_ray.model.sample_files import SampleFiles

        if not isinstance(self.files, SampleFiles):
            return planned
        files = self.files
        kept = [(task, sample) for task, sample in planned if files.has(task)]
        if not kept:
            raise ConfigError(f"--samples-dir: {self.options.samples_dir} has files for none of the planned problems")
        return kept


def answering(options: EvaluateOptions) -> tuple[EvaluateOptions, Completer | None, Selection]:
    """(settings of the run, who answers in place of a server, which episodes are wanted)."""
    changes: dict[str, object] = {"tasks": options.task_sources()}
    completer: Completer | None = None
    if options.samples_dir is not None:
        from kb_ray.model.sample_files import SampleFiles

        files = SampleFiles(options.samples_dir)
        # The number itself is fine: the command that goes on with such a run names it.
        if options.samples not in (EvaluateOptions.model_fields["samples"].default, files.samples):
            raise ConfigError(f"--samples: the files of {options.samples_dir} are {files.samples} samples of a task")
        levels = options.level or files.levels
        if not options.tasks:
            changes["tasks"] = ("kernelbench:" + ",".join(map(str, levels)),)
        # What the environment sets for other runs does not count here.
        changes |= {"samples": files.samples, "multi_turn": False}
        completer = files
    elif options.in_process is not None:
        from kb_ray.model.in_process import InProcessCompleter

        completer = InProcessCompleter(options.in_process, local=options.model_path is not None)
    return options.model_copy(update=changes), completer, Selection(options, completer)


def _check_problems(tasks: Sequence[Task]) -> None:
    """Before anything is run, what KernelBench's files could not hold afterwards."""
    problems = Problems("--format kernelbench")
    places = [problems.place(task.task_id, task.source, task.level, task.problem_id) for task in tasks]
    if not any(places):
        raise ConfigError("--format kernelbench: none of the planned tasks is a KernelBench problem")


def is_store(name: str) -> bool:
    """Whether a side of --compare is a trace store rather than a checkpoint. StoreError where S3 cannot be asked."""
    return not is_checkpoint(name)
