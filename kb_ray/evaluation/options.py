"""The settings of an evaluation: those of a run, and what is wanted of its traces.

Says what may be asked for and which settings exclude each other. Does not know how anything is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from kb_ray.config import RunConfig, Shown
from kb_ray.errors import ConfigError

Format = Literal["tritonrl", "kernelbench"]


class EvaluateOptions(RunConfig):
    """Evaluate a model, a checkpoint, files of kernels or a trace store: metrics with intervals, a table, a report."""

    output: Annotated[str, Shown("folder or URL", None, "local folder or s3://BUCKET/PREFIX")] = "evaluation_traces"
    """Where the traces of the evaluated episodes go. An evaluation that was stopped goes on when started again."""
    compare: Annotated[tuple[str, ...], Shown("two stores", "none", "two stores or checkpoint folders")] = ()
    """Compare two trace stores, or evaluate two checkpoints and compare them: differences per task, second minus
    first, with tasks gained and lost."""
    model_path: Annotated[str | None, Shown("folder", "none", "folder of a model or of a LoRA adapter")] = None
    """Checkpoint that answers within this process, without a server."""
    model_name: Annotated[str | None, Shown("name", "none", "name on the hub, or folder")] = None
    """Base model that answers within this process, without a server."""
    samples_dir: Annotated[str | None, Shown("folder", "none", "folder of *_kernel.py files")] = None
    """Kernels that KernelBench's generate_samples.py wrote, judged in place of a model's answers."""
    num_tasks: Annotated[int | None, Field(ge=1, le=1_000_000), Shown("tasks", "all")] = None
    """Only the first so many tasks."""
    level: Annotated[tuple[int, ...], Shown("LEVEL", "all", "level number")] = ()
    """Only tasks of this level, repeatable. Without --tasks it chooses the levels of KernelBench."""
    results: Annotated[str | None, Shown("folder", "OUTPUT/evaluation, else evaluation", "local folder")] = None
    """Where metrics.json and the other results go."""
    format: Annotated[tuple[Format, ...], Shown("FORMAT", "none", "tritonrl, kernelbench")] = ()
    """Also write results as other projects read them, repeatable: tritonrl.json, or KernelBench's eval_results.json."""
    gpu_hour_price: Annotated[float | None, Field(ge=0, le=10_000), Shown("per GPU hour", "no cost is told")] = None
    """Price of a GPU hour, from which the cost of verdicts follows."""
    tensorboard_log_dir: Annotated[str | None, Shown("folder", "none", "local folder")] = None
    """Log metrics and histograms for TensorBoard here, beside training's."""
    tensorboard_step: Annotated[int, Field(ge=0, le=2**62), Shown("training step")] = 0
    """Step at which TensorBoard shows them."""
    skip_corrupt: Annotated[bool, Shown("switch")] = False
    """Leave out damaged files of a store instead of refusing it."""

    @property
    def source_store(self) -> str | None:
        """The store to read in place of a run: --from."""
        value: str | None = getattr(self, "from")
        return value

    @property
    def in_process(self) -> str | None:
        """The model that answers within this process."""
        return self.model_path or self.model_name

    @property
    def results_folder(self) -> Path:
        """Where results go."""
        store = self.source_store or self.output
        if self.results is not None:
            return Path(self.results).expanduser()
        return Path("evaluation") if "://" in store else Path(store).expanduser() / "evaluation"

    def task_sources(self) -> tuple[str, ...]:
        """--tasks, or KernelBench where nothing else is named."""
        if self.tasks or self.kernelbook_samples is not None or self.kernelbench_samples is not None:
            return self.tasks
        return ("kernelbench" + (":" + ",".join(map(str, self.level)) if self.level else ""),)

    def check(self) -> None:
        """ConfigError where settings exclude each other. Not a validator: it is about no single setting."""
        named = {
            "--from": self.source_store,
            "--model": self.model,
            "--model-path": self.model_path,
            "--model-name": self.model_name,
            "--samples-dir": self.samples_dir,
            "--compare": self.compare or None,
        }
        given = [flag for flag, value in named.items() if value is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} exclude each other: name one")
        if self.compare and len(self.compare) != 2:
            raise ConfigError("--compare: two stores or checkpoints are needed")


# A flag called --from cannot be written as an attribute: it is a word of Python.
_FROM: Any = (
    Annotated[str | None, Shown("store", "none: run", "local folder or s3://BUCKET/PREFIX")],
    Field(None, description="Evaluate the episodes of this trace store instead of running any."),
)
EvaluateConfig: type[EvaluateOptions] = create_model(
    "EvaluateConfig", __base__=EvaluateOptions, __doc__=EvaluateOptions.__doc__, **{"from": _FROM}
)


def arguments(argv: Sequence[str]) -> list[str]:
    """`argv` with `--compare A B` as `--compare A --compare B`, which is how a repeatable flag is read."""
    found = list(argv)
    for index, item in enumerate(found[:-2]):
        if (
            item == "--compare"
            and found[index + 2 : index + 3] != ["--compare"]
            and not found[index + 2].startswith("-")
        ):
            return [*found[: index + 2], "--compare", *found[index + 2 :]]
    return found
