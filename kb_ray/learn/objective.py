"""What a learner minimises and how it is set up: settings only, without torch."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kb_ray.records import Record

Averaging = Literal["constant", "token", "sequence"]
Correction = Literal["none", "truncate", "mask"]


class Clip(NamedTuple):
    """Bounds of the ratio of new to old probability.

    `low`, `high`: DAPO (Yu and others, 2025). `dual`: for negative advantages the loss is at most `dual` times the
    advantage's size (Ye and others, Mastering Complex Control in MOBA Games, 2020); None: no such bound.
    """

    low: float = 0.2
    high: float = 0.28
    dual: float | None = 3.0


class Objective(Record):
    """How samples become one number.

    `likelihood`: minus the log-probability of what is trained, times the advantage: SFT and best-of-N, where that is
    1. `policy`: the clipped policy gradient against the probabilities before the step.
    """

    kind: Literal["likelihood", "policy"] = "policy"
    averaging: Averaging = "constant"
    length: int = 4096
    """Tokens that `constant` divides by: what an answer may have at most."""
    clip: Clip = Clip()
    correction: Correction = "truncate"
    """For what another program than the learner drew."""
    kl_beta: float = 0.0
    """Weight of k3 against the model without its adapter."""
    temperature: float = 1.0
    """At which the samples were drawn: probabilities are compared at the same one."""


class LoraSettings(Record):
    """The adapter. Defaults: the second document's."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.05
    target_modules: tuple[str, ...] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip


class LearnerSettings(Record):
    """The learner, whatever it is asked to learn."""

    model: str
    """Folder of weights or name on the hub."""
    lora: LoraSettings = LoraSettings()
    learning_rate: float = 1e-4
    warmup_steps: int = 0
    total_steps: int | None = None
    """With it the learning rate falls to 0 along a cosine by then; None: it stays."""
    weight_decay: float = 0.0
    gradient_norm: float = 1.0
    """Gradients longer than this are cut to it."""
    batch_tokens: int = 16384
    """Tokens in memory at once, padding included. A step is as large as it is: this only cuts it."""
    gradient_checkpointing: bool = False
    load_in_8bit: bool = False
    """The base model in 8 bits (bitsandbytes, on a GPU)."""
    seed: int = 0
