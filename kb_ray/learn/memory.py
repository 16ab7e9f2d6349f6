"""Which settings help, in words, where a device has no memory left.

A setting that decides what is learned cannot be changed in an output that there is: where one helps the words say so.
Knows settings by their flags; no model, and nothing of what was to be held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from kb_ray.errors import ConfigError
from kb_ray.learn.batching import bucketed
from kb_ray.learn.objective import LearnerSettings
from kb_ray.learn.stepping import OutOfMemory, under_another_output
from kb_ray.out_of_memory import host_ran_out, ran_out

_GIB = 1 << 30
_GOES_ON = "this output goes on with it"


@contextmanager
def fitting(settings: LearnerSettings, device: str) -> Iterator[None]:
    """ConfigError, with what to change, where the model or what goes with it does not fit into the device's memory."""
    try:
        yield
    # Not torch's error alone: the driver, transformers and the host each have one of their own.
    except Exception as error:
        if isinstance(error, ConfigError) or not ran_out(error):
            raise
        raise ConfigError(_too_large(settings, gpu=device == "cuda" and not host_ran_out(error))) from error


@contextmanager
def learning(settings: LearnerSettings, steps: int, rows: int, longest: int) -> Iterator[None]:
    """OutOfMemory, with what to change, where a step's batch of `rows` sequences, padded to `longest` tokens, does not
    fit; `steps`: those taken before."""
    try:
        yield
    except RuntimeError as error:
        if not ran_out(error):
            raise
        raise OutOfMemory(_not_learned(settings, steps, rows, longest)) from error


@contextmanager
def answering(lengths: Sequence[int], batch_tokens: int, steps: int) -> Iterator[None]:
    """OutOfMemory, with what to change, where answers do not fit while they are drawn, `batch_tokens` at once.

    `lengths`: of each prompt with its answer at its longest; `steps`: optimizer steps taken before.
    """
    try:
        yield
    except RuntimeError as error:
        if not ran_out(error):
            raise
        rows = max(map(len, bucketed(lengths, batch_tokens)))
        raise OutOfMemory(_not_drawn(rows, batch_tokens, steps)) from error


def _not_learned(settings: LearnerSettings, steps: int, rows: int, longest: int) -> str:
    keeps = [] if settings.gradient_checkpointing else ["give --gradient-checkpointing"]
    if rows > 1:
        keeps.insert(0, f"lower --batch-tokens, now {settings.batch_tokens}")
    advice = [f"{', or '.join(keeps)}: {_GOES_ON}"] if keeps else []
    if rows == 1:
        advice.append(f"lower --max-tokens (of tritonrl's SFT: --sft-max-tokens) {under_another_output(steps)}")
    return (
        f"step {steps + 1}: memory does not hold {rows} sequences of {longest} tokens at once: the step was "
        f"not taken; {'; or '.join(advice)}"
    )


def _not_drawn(rows: int, batch_tokens: int, steps: int) -> str:
    told = f"memory does not hold what is needed to draw {rows} answers at once: "
    if rows > 1:
        return f"{told}lower --rollout-tokens, now {batch_tokens}: {_GOES_ON}"
    return (
        f"{told}have a server draw them (--vllm-url and --adapters-path): {_GOES_ON}; or lower --max-tokens "
        f"{under_another_output(steps)}"
    )


def _too_large(settings: LearnerSettings, gpu: bool) -> str:
    place = f"the GPU's memory{_of_the_gpu()}" if gpu else "the machine's memory"
    larger = f"train where there is {'a GPU with ' if gpu else ''}more: this output goes on there"
    in_8_bits = "" if settings.load_in_8bit or not gpu else f"give --load-in-8bit {under_another_output(None)}; or "
    return (
        f"model {settings.model} and what it takes to train it do not fit into {place}: {larger}; or {in_8_bits}"
        # What was learned so far is for this model alone.
        "begin anew with a smaller --model-name under another --output"
    )


def _of_the_gpu() -> str:
    """Its size, and what other processes have of it where that is much; empty where the driver does not tell."""
    try:
        free, total = torch.cuda.mem_get_info()
        others = total - free - torch.cuda.memory_reserved()
    # A GPU that is full may not even answer this.
    except (RuntimeError, AssertionError):
        return ""
    taken = f", of which other processes have {others / _GIB:.1f}" if others > _GIB else ""
    return f" ({total / _GIB:.1f} GiB{taken})"
