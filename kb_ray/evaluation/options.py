"""The settings of an evaluation: those of a run, and what is wanted of its traces.

Says what may be asked for and which settings exclude each other. Does not know how anything is done.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from pydantic import Field, create_model

from kb_ray.config import RunConfig, Shown
from kb_ray.config_sources import parse_command
from kb_ray.errors import ConfigError
from kb_ray.traces.store import local_path

Format = Literal["tritonrl", "kernelbench"]


class EvaluateOptions(RunConfig):
    """Evaluate a model, a checkpoint, files of kernels or a trace store: metrics with intervals, a table, a report."""

    output: Annotated[str, Shown("folder or URL", None, "local folder or s3://BUCKET/PREFIX")] = "evaluation_traces"
    """Where the traces of the evaluated episodes go. An evaluation that was stopped goes on when started again."""
    compare: Annotated[tuple[str, ...], Shown("two stores", "none", "two stores or checkpoints")] = ()
    """Compare two trace stores, or evaluate two checkpoints and compare them: differences per task, second minus
    first, with tasks gained and lost."""
    model_path: Annotated[
        str | None, Shown("checkpoint", "none", "folder of a model, a LoRA adapter or a run; s3:// of a run")
    ] = None
    """Checkpoint that answers within this process, without a server: of a training run's output the latest."""
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
            return local_path(self.results)
        return Path("evaluation") if "://" in store else local_path(store) / "evaluation"

    def task_sources(self) -> tuple[str, ...]:
        """--tasks, or KernelBench where nothing else is named."""
        if self.tasks or self.kernelbook_samples is not None or self.kernelbench_samples is not None:
            return self.tasks
        return ("kernelbench" + (":" + ",".join(map(str, self.level)) if self.level else ""),)

    def check(self, given: Collection[str] = ()) -> None:
        """ConfigError where settings exclude each other, or one of those `given` would do nothing.

        Not a validator: it is about no single setting.
        """
        named = {
            "--from": self.source_store,
            "--model": self.model,
            "--model-path": self.model_path,
            "--model-name": self.model_name,
            "--samples-dir": self.samples_dir,
            "--compare": self.compare or None,
        }
        sources = [flag for flag, value in named.items() if value is not None]
        if "vllm_url" in given and sources != ["--model"]:
            sources.append("--vllm-url")
        if len(sources) > 1:
            raise ConfigError(f"{' and '.join(sources)} exclude each other: name one")
        if self.compare and len(self.compare) != 2:
            raise ConfigError("--compare: two stores or checkpoints are needed")
        if self.source_store is not None:
            refuse(set(given) - _OF_A_STORE, "--from", "the store is read and nothing is run")
        if self.samples_dir is not None:
            refuse(_OF_A_MODEL & set(given), "--samples-dir", "its files are the answers, and no model is asked")
        if self.compare:
            refuse(_NOT_COMPARED & set(given), "--compare", "it writes comparison.json alone")
        if "tensorboard_step" in given and self.tensorboard_log_dir is None:
            raise ConfigError("--tensorboard-step: nothing is logged without --tensorboard-log-dir")
        for flag, folder in (("--results", self.results), ("--tensorboard-log-dir", self.tensorboard_log_dir)):
            if folder is not None and "://" in folder:
                raise ConfigError(f"{flag}: {folder} is no local folder: name one, and copy it from there")
            if folder is not None:
                local_path(folder)


# A flag called --from cannot be written as an attribute: it is a word of Python.
_FROM: Any = (
    Annotated[str | None, Shown("store", "none: run", "local folder or s3://BUCKET/PREFIX")],
    Field(None, description="Evaluate the episodes of this trace store instead of running any."),
)
EvaluateConfig: type[EvaluateOptions] = create_model(
    "EvaluateConfig", __base__=EvaluateOptions, __doc__=EvaluateOptions.__doc__, **{"from": _FROM}
)


_PROGRAM = "python -m kb_ray.evaluate"
_OF_STORES = frozenset({"level", "num_tasks", "exclude_flagged", "results", "skip_corrupt", "log_format"})
"""What can be asked of any store."""
_NOT_COMPARED = frozenset({"format", "tensorboard_log_dir", "tensorboard_step"})
_OF_A_MODEL = frozenset({
    "api_key", "temperature", "top_p", "max_tokens", "context", "prompt", "rag_index", "rag_model", "raicl_k",
    "raicl_tokens", "raicl_overlap", "raicl_cuda", "multi_turn", "max_turns", "retry_failed", "max_tokens_total",
})  # fmt: skip
"""What only somebody who writes answers would heed. A file is one answer: nobody is there to hear feedback."""
_OF_A_STORE = _OF_STORES | _NOT_COMPARED | {"from", "gpu_hour_price"}


def parse(argv: Sequence[str]) -> tuple[EvaluateOptions, frozenset[str]]:
    """(settings, names of those that this very command sets). ConfigError as `parse_command` and `check`.

    What the environment sets is not among the names: it is there for every command, and may well do nothing here.
    """
    options = parse_command(EvaluateConfig, arguments(argv), prog=_PROGRAM)
    surroundings = parse_command(EvaluateConfig, (), prog=_PROGRAM, warn=lambda line: None)
    given = frozenset(
        name for name in EvaluateConfig.model_fields if getattr(options, name) != getattr(surroundings, name)
    )
    options.check(given)
    return options, given


def check_stores_only(given: Collection[str]) -> None:
    """ConfigError where two stores are compared and a setting is `given` that only a run would heed."""
    refuse(set(given) - _OF_STORES - {"compare"}, "--compare", "two stores are read and nothing is run")


def refuse(names: Collection[str], flag: str, because: str) -> None:
    """ConfigError where there are names of settings that do nothing beside `flag`."""
    if names:
        flags = " and ".join("--" + name.replace("_", "-") for name in sorted(names))
        raise ConfigError(f"{flag} and {flags} exclude each other: {because}")


def arguments(argv: Sequence[str]) -> list[str]:
    """`argv` as the parser reads it: `--compare A B` as two flags, `--model_path` with dashes, and a list that is
    given as key=value more than once as one list."""
    found = _joined([_dashed(item) for item in argv])
    for index, item in enumerate(found[:-2]):
        if (
            item == "--compare"
            and found[index + 2 : index + 3] != ["--compare"]
            and not found[index + 2].startswith("-")
        ):
            return [*found[: index + 2], "--compare", *found[index + 2 :]]
    return found


def _dashed(item: str) -> str:
    name, equals, value = item.partition("=")
    return name.replace("_", "-") + equals + value if item.startswith("--") else item


def _joined(argv: Sequence[str]) -> list[str]:
    """Assignments to the same list as one, where the first of them stands."""
    found: list[str] = []
    places: dict[str, int] = {}
    for index, item in enumerate(argv):
        name, equals, value = item.partition("=")
        name = name.replace("-", "_")
        if item.startswith("-") or not equals or not _is_list(name) or (index and _takes_a_value(argv[index - 1])):
            found.append(item)
        elif name in places and "[" not in (value[:1], found[places[name]].partition("=")[2][:1]):
            found[places[name]] += f" {value}"
        else:
            places[name] = len(found)
            found.append(item)
    return found


def _is_list(name: str) -> bool:
    return name in EvaluateConfig.model_fields and get_origin(EvaluateConfig.model_fields[name].annotation) is tuple


def _takes_a_value(item: str) -> bool:
    """Whether what follows belongs to this flag."""
    name = item.removeprefix("--").removeprefix("no-").replace("-", "_")
    field = EvaluateConfig.model_fields.get(name)
    return item.startswith("-") and "=" not in item and (field is None or field.annotation is not bool)
