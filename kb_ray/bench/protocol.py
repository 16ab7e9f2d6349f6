"""What is asked of a bench worker: one frozen request. The answer is a `records.Verdict`.

Needs pydantic and the standard library only, so that driver, actor and judge can all read it.
Does not know how a verdict is reached.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field

from kb_ray.records import Record, Task

VERIFIER_VERSION = "3"
"""Changes whenever the same candidate could get another verdict."""


class BenchSettings(Record):
    """How candidates are verified. Part of a run's fingerprint: it changes what the traces hold."""

    n_correctness: int = Field(default=5, ge=1, le=100)
    """Input sets a candidate must pass."""
    n_trials: int = Field(default=50, ge=3, le=10_000)
    """Timed calls of each side."""
    n_warmup: int = Field(default=10, ge=1, le=1_000)
    """Untimed calls before the timed ones."""
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds for each phase (load, compile, run), counted while it runs."""
    device: Literal["cuda", "cpu"] = "cpu"
    torch_ops: Literal["allow", "report", "forbid"] = "report"
    """What becomes of PyTorch operators that compute within a candidate: nothing, evidence, or `hack`."""
    generalise: Literal["off", "report", "require"] = "report"
    """Whether a correct kernel is also tried at another shape and dtype, which its task does not promise:
    not at all, as evidence, or as a condition of being correct."""
    baseline: Literal["eager", "compile"] = "eager"
    """`compile`: the reference is also timed through torch.compile, beside the eager one."""
    measure_performance: bool = True
    """Whether correct candidates are timed where there is a GPU. Without it a verdict tells right from wrong alone, and
    what only timed calls show, such as outputs replayed between them, goes unseen."""
    tf32: bool = False
    """Whether float32 products may be rounded to TF32, on both sides alike."""


class BenchRequest(Record):
    """One candidate to verify against one task."""

    request_id: str
    task: Task
    kernel_code: str
    settings: BenchSettings = BenchSettings()
    inspect: bool = False
    """Ask about the task alone: does its reference run, and what speaks against the task? `kernel_code` is then empty;
    the answer is in `evidence.flags`."""
    max_bytes: int | None = Field(default=None, ge=1)
    """With `inspect`: a task whose inputs, weights and outputs together take more is not run, only flagged."""


def judged(task: Task, kernel_code: str) -> str:
    """32 hexadecimal digits over a task's program and a candidate: what a verdict says that it is about."""
    both = f"{len(task.reference_code)}\n{task.reference_code}{kernel_code}"
    # Half of a surrogate pair, which a model can emit, has no UTF-8.
    return hashlib.sha256(both.encode(errors="surrogatepass")).hexdigest()[:32]
