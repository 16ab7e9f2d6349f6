"""The settings of the second document's whole run: SFT on pairs, then best-of-N from what that learned.

Has what best-of-N has, and for SFT what is SFT's own. Does not know how either is done.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from kb_ray.config import Shown
from kb_ray.training.rl_settings import BestOfNSettings
from kb_ray.training.settings import SftSettings, TrainSettings, in_place_of


class WholeSettings(BestOfNSettings):
    """SFT on pairs or traces, then best-of-N from there, in one command that goes on where it was stopped."""

    stage: Annotated[Literal["all", "sft", "rl"], Shown("stage")] = "all"
    """all: SFT, then best-of-N; sft or rl: that one alone, rl from what sft left in OUTPUT/sft."""
    level: Annotated[tuple[int, ...], Shown("LEVEL", None, "KernelBench levels")] = (2,)
    """Levels of KernelBench that best-of-N tries, where no tasks are named."""
    data: Annotated[tuple[str, ...], Shown("SPEC", "kernelbook", "kernelbook, file:PATH, trace stores")] = (
        "kernelbook",
    )
    """What SFT learns from, repeatable: a trace store; kernelbook or file:PATH, each row a program and a kernel."""
    samples: Annotated[int | None, Field(ge=1, le=100_000_000), Shown("conversations", "all")] = 1000
    """Conversations of SFT at most."""
    epochs: Annotated[int, Field(ge=1, le=1000), Shown("epochs")] = 1
    """How often SFT learns each."""
    sft_batch_size: Annotated[int | None, Field(ge=1, le=100_000), Shown("conversations per step", "2")] = None
    """Conversations of one step of SFT, of all --train-workers together."""
    per_device_batch_size: Annotated[
        int | None, Field(ge=1, le=100_000), Shown("conversations per process", "none: --sft-batch-size")
    ] = None
    """In place of --sft-batch-size: conversations of one step of SFT for each of --train-workers."""
    sft_max_tokens: Annotated[int, Field(ge=16, le=1 << 20), Shown("tokens")] = 8192
    """Longer conversations are left out of SFT and counted, never cut."""
    eval_tasks: Annotated[tuple[str, ...], Shown("SPEC", "none", "task sources")] = ()
    """Tasks to be kept clean, repeatable: they and their near copies are not learned by SFT."""

    @field_validator("per_device_batch_size")
    @classmethod
    def _instead_of_sft_batch_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        return in_place_of(value, info, "sft_batch_size")

    def sft(self) -> SftSettings:
        """The first stage, into OUTPUT/sft."""
        own = {
            "output": _below(self.output, "sft"), "start_from": self.start_from, "data": self.data,
            "samples": self.samples, "epochs": self.epochs, "batch_size": self.sft_batch_size,
            "per_device_batch_size": self.per_device_batch_size, "max_tokens": self.sft_max_tokens,
            "eval_tasks": self.eval_tasks, "prompt_option": self.prompt_option,
            "kernelbench_root": self.kernelbench_root,
        }  # fmt: skip
        return SftSettings.model_validate(self._of(TrainSettings) | own)

    def best_of_n(self) -> BestOfNSettings:
        """The second, into OUTPUT/rl, from the adapter that the first one left."""
        own = {"output": _below(self.output, "rl"), "start_from": _below(self.output, "sft")}
        return BestOfNSettings.model_validate(self._of(BestOfNSettings) | own)

    def _of(self, part: type[TrainSettings]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in part.model_fields}


def _below(output: str, stage: str) -> str:
    return f"{output.rstrip('/')}/{stage}"
