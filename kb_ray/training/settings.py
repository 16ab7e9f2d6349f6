"""The settings of training: what may be asked for, with the defaults of the documents each command comes from.

What identifies a run of training is what decides which weights come out, so that it can be moved and gone on with: no
folder counts by where it lies. Does not know how anything is done.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from kb_ray.base_models import in_full, is_folder
from kb_ray.config import Fixed, Shown
from kb_ray.learn.objective import LearnerSettings, LoraSettings
from kb_ray.learn.sft import SftRule
from kb_ray.training.other_names import FIXED, GROUPS, NAMES

_WHERE = frozenset(
    {
        "output",
        "checkpoint_every",
        "keep_checkpoints",
        "batch_tokens",
        "rollout_tokens",
        "gradient_checkpointing",
        "kernelbench_root",
        "train_workers",
        "vllm_url",
        "served_model",
        "adapters_path",
        "bench_workers",
        "bench_concurrency",
    }
    # How long a loop of batches goes on, and what a run says must be given before it can be gone on with.
    | {"steps", "skip_corrupt"}
    | {"tensorboard_enabled", "tensorboard_log_histograms_every", "tensorboard_log_per_level"}
)
"""Settings that change where, how fast and how long, not what is learned: each start of an output may have its own."""
_STEP = 2
"""Conversations of a step of SFT, where nothing is said of it: the second document's."""


class TrainSettings(BaseModel):
    """What every command of training has."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
    other_names: ClassVar[Mapping[str, str]] = NAMES
    fixed: ClassVar[Mapping[str, Fixed]] = FIXED
    groups: ClassVar[tuple[str, ...]] = GROUPS

    model_name: Annotated[str, Shown("name", None, "folder, or name on the hub")] = "Qwen/Qwen2.5-Coder-7B-Instruct"
    """Base model."""
    output: Annotated[str, Shown("folder or URL", None, "local folder or s3://BUCKET/PREFIX")] = "runs/train"
    """Where checkpoints and metrics go. A run that ended goes on when started again."""
    start_from: Annotated[str | None, Shown("folder", "a fresh adapter", "run, checkpoint or adapter")] = None
    """Begin with the adapter of another run."""
    learner: Annotated[Literal["local", "tinker"], Shown("learner")] = "local"
    """local: learn on the machines here; tinker: at Tinker's service, with TINKER_API_KEY."""
    train_workers: Annotated[int, Field(ge=1, le=1024), Shown("processes")] = 1
    """Processes that take each step together through Ray Train, one to a GPU; 1 is in the run's own process."""
    learning_rate: Annotated[float, Field(gt=0, le=1), Shown("per step")] = 1e-4
    """Of the adapter's weights."""
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000), Shown("steps")] = 0
    """Steps in which the learning rate rises from 0."""
    lora_rank: Annotated[int, Field(ge=1, le=512), Shown("rank")] = 16
    """Of the LoRA adapter. vLLM serves 8, 16, 32, 64, 128, 256, 320 and 512."""
    lora_alpha: Annotated[int, Field(ge=1, le=4096), Shown("scale")] = 32
    """The adapter's scale: alpha / rank."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1), Shown("share")] = 0.05
    """Share of the adapter's inputs that are dropped while it learns."""
    lora_targets: Annotated[tuple[str, ...], Shown("MODULE", "all projections", "module names")] = ()
    """Modules that get an adapter, repeatable."""
    load_in_8bit: Annotated[bool, Shown("switch")] = False
    """Hold the base model in 8 bits (bitsandbytes, on a GPU)."""
    gradient_checkpointing: Annotated[bool, Shown("switch")] = False
    """Compute activations twice in place of keeping them: less memory, more time."""
    batch_tokens: Annotated[int, Field(ge=1, le=1 << 24), Shown("tokens")] = 16384
    """Tokens of a process in memory at once while learning, padding included. Less where memory runs out."""
    checkpoint_every: Annotated[int, Field(ge=1, le=1_000_000), Shown("steps")] = 50
    """Steps from one checkpoint to the next."""
    keep_checkpoints: Annotated[int, Field(ge=1, le=10_000), Shown("checkpoints")] = 2
    """Newest checkpoints that are kept."""
    tensorboard_enabled: Annotated[bool, Shown("switch")] = True
    """Also write what metrics.jsonl holds for TensorBoard, into OUTPUT/tensorboard of a local output."""
    tensorboard_log_histograms_every: Annotated[int, Field(ge=1, le=1_000_000), Shown("steps")] = 5
    """Steps from one histogram to the next."""
    tensorboard_log_per_level: Annotated[bool, Shown("switch")] = True
    """Also tell rewards and correctness of each level."""
    seed: Annotated[int, Field(ge=0, lt=2**63), Shown("seed")] = 0
    """Of first weights, order of samples, and draws."""

    @field_validator("model_name", "output", "start_from")
    @classmethod
    def _of_home(cls, value: str | None) -> str | None:
        """A path below a home folder in full: not everyone who reads it knows `~`."""
        found = value and os.path.expanduser(value)
        if found and found.startswith("~"):
            raise ValueError(f"there is no home folder {found.partition('/')[0]}: name the folder in full")
        return found

    def learning(self, total_steps: int | None) -> LearnerSettings:
        """The learner's settings."""
        lora = LoraSettings(rank=self.lora_rank, alpha=self.lora_alpha, dropout=self.lora_dropout)
        if self.lora_targets:
            lora = lora.model_copy(update={"target_modules": self.lora_targets})
        # In full, so that a checkpoint's base model is found from anywhere; at a service there are names alone.
        model = in_full(self.model_name) if self.learner == "local" else self.model_name
        return LearnerSettings(
            model=model, lora=lora, learning_rate=self.learning_rate, warmup_steps=self.warmup_steps,
            total_steps=total_steps, batch_tokens=self.batch_tokens, load_in_8bit=self.load_in_8bit,
            gradient_checkpointing=self.gradient_checkpointing, seed=self.seed,
        )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """What decides which weights come out, and must be the same in every start of an output.

        A base model's folder stands as null: whether it is the one that a checkpoint was trained on is seen from the
        model itself; a name on the hub counts. `start_from` stands as the last part of its path, RUN or RUN/stepN of a
        checkpoint. So both may be moved, with their folders, and spelled in any way.
        """
        base = None if is_folder(self.model_name) else self.model_name
        start_from = self.start_from and _last_part(self.start_from)
        return self._told() | {"model_name": base, "start_from": start_from}

    def _told(self) -> dict[str, Any]:
        """The settings that decide, as they are spelled."""
        return self.model_dump(mode="json", exclude=set(_WHERE))

    def fingerprint(self) -> str:
        """16 hex digits over the identity."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:16]


def _last_part(path: str) -> str:
    """RUN of a run's or an adapter's folder or URL, RUN/stepN of a run's checkpoint."""
    whole = path.rstrip("/") if "://" in path else os.path.abspath(path)
    run, below, step = whole.rpartition("/checkpoints/")
    return f"{run.rpartition('/')[2]}/{step.removesuffix('/adapter')}" if below else whole.rpartition("/")[2]


class SftSettings(TrainSettings):
    """Fine-tune an adapter on correct answers of trace stores, or on pairs; the loss is over the answers only."""

    data: Annotated[tuple[str, ...], Shown("SPEC", "none", "kernelbook, file:PATH, trace stores")] = ()
    """What to learn from, repeatable: a trace store; kernelbook or file:PATH, each row a program and a kernel."""
    prompt_option: Annotated[str, Shown("name or path", None, "template")] = "default"
    """Prompt template in which the programs of pairs are asked about; those of traces are kept as they were."""
    samples: Annotated[int | None, Field(ge=1, le=100_000_000), Shown("conversations", "all")] = 1000
    """Conversations at most."""
    keep: Annotated[Literal["correct", "fast", "best", "all"], Shown("answers")] = "correct"
    """Which answer of an episode is learned: the best correct one; one at least as fast as the reference; the best
    turn, right or wrong; the last."""
    conversation: Annotated[Literal["whole", "last"], Shown("turns")] = "whole"
    """Learn all turns up to that answer, or the answer alone."""
    reasoning: Annotated[Literal["drop", "inline"], Shown("reasoning")] = "drop"
    """Leave reasoning out, or put it in front of the answer in <think> tags."""
    epochs: Annotated[int, Field(ge=1, le=1000), Shown("epochs")] = 1
    """How often each conversation is learned."""
    batch_size: Annotated[int | None, Field(ge=1, le=100_000), Shown("conversations per step", f"{_STEP}")] = None
    """Conversations of one optimizer step, of all --train-workers together."""
    per_device_batch_size: Annotated[
        int | None, Field(ge=1, le=100_000), Shown("conversations per process", "none: --batch-size")
    ] = None
    """In place of --batch-size: conversations of one optimizer step for each of --train-workers, so that the step has
    as many times more."""
    max_tokens: Annotated[int, Field(ge=16, le=1 << 20), Shown("tokens")] = 8192
    """Longer conversations are left out and counted, never cut."""
    eval_tasks: Annotated[tuple[str, ...], Shown("SPEC", "none", "task sources")] = ()
    """Tasks to be kept clean, repeatable: they and their near copies are not learned."""
    kernelbench_root: Annotated[str | None, Shown("folder", "a checkout nearby, else the hub", "folder")] = None
    """A checkout of KernelBench, for --eval-tasks."""
    skip_corrupt: Annotated[bool, Shown("switch")] = False
    """Leave damaged files of trace stores out, and name them."""

    @field_validator("per_device_batch_size")
    @classmethod
    def _instead_of_batch_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        return in_place_of(value, info, "batch_size")

    def step_size(self) -> int:
        """Conversations of one optimizer step, of all processes together."""
        if self.per_device_batch_size is not None:
            return self.per_device_batch_size * self.train_workers
        return self.batch_size or _STEP

    def _told(self) -> dict[str, Any]:
        """How large a step is counts, not how many processes share it."""
        found = super()._told()
        del found["per_device_batch_size"]
        return found | {"batch_size": self.step_size()}

    def rule(self) -> SftRule:
        """How samples are gone through."""
        return SftRule(epochs=self.epochs, batch_size=self.step_size(), seed=self.seed)


def in_place_of(value: int | None, info: ValidationInfo, name: str) -> int | None:
    """The value of a setting that stands in place of another; ValueError where both are given."""
    if value is not None and info.data.get(name) is not None:
        raise ValueError(f"give this or --{name.replace('_', '-')}, not both")
    return value
