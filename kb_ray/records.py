"""The nouns: frozen records that travel from task to trace, each with an exact JSON round trip.

Knows no effect and no policy: nothing here reads a file, calls a model or decides what happens next.
What a verdict's status implies stands in `statuses`, whose words are part of the records.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kb_ray.retrieved import Retrieved as Retrieved
from kb_ray.statuses import STAGE_ORDER as STAGE_ORDER
from kb_ray.statuses import Stage as Stage
from kb_ray.statuses import Status as Status
from kb_ray.statuses import validity as validity


class Record(BaseModel):
    """Frozen, strict about field names; `model_dump_json` and `model_validate_json` are inverse."""

    # NaN and infinities are legitimate measurements (max error of a NaN output): keep them in JSON.
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="constants")


class TensorSpec(Record):
    """Shape and dtype of one named input of a `function` task."""

    shape: tuple[int, ...]
    dtype: str = "float32"


class Task(Record):
    """A PyTorch program to be rewritten as a Triton kernel."""

    task_id: str
    """Stable: `kernelbench/1/19_ReLU`, `kernelbook/1174`, `builtin/1/add_relu`, `folder/NAME`, `file/NAME`."""
    source: str
    """`builtin`, `kernelbench`, `kernelbook`, `folder` or `file`."""
    level: int | None = None
    name: str
    problem_id: int | None = None
    reference_code: str
    style: Literal["module", "function"]
    """`module`: a class, `get_inputs()`, `get_init_inputs()`. `function`: `reference_impl`."""
    entry_point: str
    """Name of the reference's class (`Model`, or KernelBook's own) or function (`reference_impl`)."""
    init_convention: Literal["args", "args_kwargs"] = "args"
    """What `get_init_inputs()` returns: the flat argument list, or KernelBook's `[args, kwargs]`."""
    input_shapes: dict[str, TensorSpec] | None = None
    """Inputs of a `function` task by parameter name; None: its `get_inputs()` makes them."""
    uuid: str | None = None
    license: str | None = None
    """Both as the data set's row has them, where it does: its own identity, and the program's licence (`MIT`)."""
    flags: tuple[str, ...] = ()
    """What the task gate holds against the task (constant output, random, ...)."""


class Message(Record):
    """One chat message. `reasoning` is kept for the trace; whether it is sent again is the prompt's policy."""

    role: Literal["system", "user", "assistant"]
    content: str
    reasoning: str | None = None


class Usage(Record):
    """Tokens of one completion, as the server counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Sampling(Record):
    """Sampling parameters of one request, as sent."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 4096
    """Tokens of the answer at most."""
    seed: int | None = None


class Completion(Record):
    """One answer of a model."""

    text: str
    """The answer without reasoning. Never None: an empty answer is an empty string."""
    reasoning: str | None = None
    """From the server's reasoning field, or what stood in `<think>`."""
    finish_reason: str
    """`stop`, `length`, or what else the server said."""
    usage: Usage = Usage()
    latency_s: float = 0.0
    """Seconds from sending to the whole answer, retries included."""
    model: str
    sampling: Sampling = Sampling()
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


class Candidate(Record):
    """Code taken from a completion."""

    code: str
    rule: str
    """Which extraction rule applied, e.g. `triton_tag`, `fence`, `bare`."""


class NoCandidate(Record):
    """Why a completion holds no code."""

    status: Literal["no_code", "truncated"]
    reason: str


class Timing(Record):
    """Times of one side, in milliseconds. The mean leaves out the slowest and fastest 10 %."""

    median_ms: float
    trimmed_mean_ms: float
    std_ms: float
    n: int
    samples_ms: tuple[float, ...] = ()


class ErrorDetail(Record):
    """What went wrong with a candidate, in a form that can be told to the model."""

    category: str
    """Heading for feedback, e.g. `COMPILATION ERROR`."""
    message: str
    """The key line, without traceback noise."""
    detail: str = ""
    """The compiler's or traceback's relevant lines, bounded; source line under the line number."""
    line: int | None = None
    """1-based line in the candidate's file, where known."""
    output: str | None = None
    """Which output differs, as a path: `out`, `out[1]`, `out['loss']`."""
    position: tuple[int, ...] | None = None
    """Index of the first wrong element."""
    expected: str | None = None
    got: str | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    wrong_elements: int | None = None
    total_elements: int | None = None
    pattern: str | None = None
    """A regularity in the wrong elements, where one was seen (`all`, `tail`, `constant factor 2`)."""


class Evidence(Record):
    """What was seen while the candidate ran. From its own process: it may convict, never acquit."""

    kernel_launches: int | None = None
    """Launches of JIT functions of the candidate's own file, over all checked calls."""
    kernels: tuple[str, ...] = ()
    torch_ops: dict[str, int] = {}
    """Torch operators that compute, with how often each was called."""
    kernel_time_share: float | None = None
    """Share of a call's GPU time that kernels of the candidate's own file took, 0 to 1; None where not timed."""
    generalises: dict[str, str] = {}
    """Status at a shape or dtype that the task does not promise, by `shape` and `dtype`, where it was tried."""
    input_bytes: int | None = None
    """Bytes of the task's inputs, where they were made or estimated."""
    sandbox_level: str = "none"
    flags: tuple[str, ...] = ()


class Environment(Record):
    """Where a verdict was reached."""

    device: Literal["cuda", "cpu"] | None = None
    gpu: str | None = None
    driver: str | None = None
    torch: str | None = None
    triton: str | None = None
    python: str | None = None
    host: str | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()


class Verdict(Record):
    """The answer to one candidate. `speedup` is reference time over kernel time."""

    status: Status
    stage: Stage
    valid: bool
    compiled: bool
    correct: bool
    trusted: bool = False
    timed: bool = False
    tests_passed: int = 0
    tests_total: int = 0
    speedup: float | None = None
    speedup_low: float | None = None
    """Lower end of the 95 % interval of the ratio."""
    speedup_high: float | None = None
    fast_0: bool = False
    fast_1: bool | None = None
    fast_2: bool | None = None
    kernel_time: Timing | None = None
    reference_time: Timing | None = None
    compiled_time: Timing | None = None
    """The reference through torch.compile, where asked for."""
    speedup_compiled: float | None = None
    """`compiled_time` over kernel time."""
    error: ErrorDetail | None = None
    evidence: Evidence = Evidence()
    env: Environment = Environment()
    verifier_version: str = ""
    judged: str | None = None
    """`bench.protocol.judged` of the task and the candidate that it is about; None where nothing was judged."""
    seconds: dict[str, float] = {}
    """Wall seconds per phase (queue, reference, load, compile, check, timing, total)."""

    @classmethod
    def of(cls, status: Status, stage: Stage, **fields: Any) -> Verdict:
        """A verdict whose valid, compiled, correct and fast_* follow from status, stage and speedup."""
        valid, compiled, correct = validity(status, stage)
        speedup = fields.get("speedup")
        return cls(
            status=status, stage=stage, valid=valid, compiled=compiled, correct=correct, timed=speedup is not None,
            fast_0=correct,
            fast_1=None if speedup is None else correct and speedup > 1.0,
            fast_2=None if speedup is None else correct and speedup >= 2.0,
            **fields,
        )  # fmt: skip


class TurnTimes(Record):
    """Wall seconds of one turn, by what was waited for."""

    model_queue_s: float = 0.0
    model_s: float = 0.0
    bench_s: float = 0.0
    """From handing the candidate to the pool to its verdict, queueing included."""


class Turn(Record):
    """One exchange: what was asked (by hash), what came back, what it was worth."""

    index: int
    """0-based."""
    prompt_hash: str
    completion: Completion
    triton_code: str | None
    """The candidate's code, or None where there was none."""
    extraction_rule: str | None = None
    feedback_given: str | None
    """The message this verdict led to, if another turn followed."""
    verdict: Verdict
    times: TurnTimes = TurnTimes()
    policy_version: str | None = None
    """The adapter or weights that answered, where training moves them."""


class StopReason(StrEnum):
    """Why an episode ended."""

    SUCCESS_FAST = "success_fast"
    SUCCESS_UNTIMED = "success_untimed"
    MAX_TURNS = "max_turns_reached"
    CONTEXT = "context_exhausted"
    MODEL_ERROR = "model_error"
    INFRA_ERROR = "infra_error"


REDONE_ON_RESUME = frozenset({StopReason.MODEL_ERROR, StopReason.INFRA_ERROR})
"""Episodes that ended so are tried again, as the next attempt, when the run is started again."""


class Episode(Record):
    """One task, one sample, all its turns: the unit that is committed to the trace store."""

    episode_id: str
    run_id: str
    task: Task
    sample: int
    attempt: int
    """1 for the first try; readers take the highest attempt of a (task, sample)."""
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    best_turn: int | None
    """Index into `turns`; None where there is no turn."""
    messages: tuple[Message, ...]
    error: str | None = None
    """What failed, for model_error and infra_error."""
    created_at: str
    """UTC, ISO 8601, when the episode ended."""
    retrieved: Retrieved | None = None
    """The examples of its opening prompt, where it shows some."""
