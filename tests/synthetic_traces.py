"""Synthetic runs: seeded episodes of many kinds as a real trace store, and one whose texts are hostile to a page.

Made of records and written by the store's own encoder. The numbers are drawn, not measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.records import (
    Completion,
    Environment,
    Episode,
    ErrorDetail,
    Evidence,
    Message,
    Stage,
    Status,
    StopReason,
    Task,
    Timing,
    Turn,
    TurnTimes,
    Usage,
    Verdict,
)
from kb_ray.traces.layout import part_key
from kb_ray.traces.run import episode_id
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import Store, open_store

HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1"> {{title}} ]]> <!-- &lt;'
_MAX_TURNS = 4
_STAGES = {
    Status.MISMATCH: Stage.FULL, Status.WRONG_SHAPE: Stage.TINY, Status.NONFINITE: Stage.TINY, Status.HACK: Stage.FULL,
    Status.COMPILE_ERROR: Stage.COMPILE, Status.RUNTIME_ERROR: Stage.TINY, Status.ILLEGAL_ACCESS: Stage.TINY,
    Status.TIMEOUT: Stage.FULL, Status.OOM: Stage.FULL, Status.SYNTAX_ERROR: Stage.STATIC,
    Status.FORBIDDEN: Stage.STATIC, Status.NO_CODE: Stage.EXTRACT, Status.TRUNCATED: Stage.EXTRACT,
    Status.NO_KERNEL: Stage.STATIC,
}  # fmt: skip
_WEIGHTS = dict(zip(_STAGES, (18, 6, 3, 2, 22, 8, 4, 2, 1, 6, 3, 5, 3, 4), strict=True))
_PATTERNS = ("all elements, constant factor 2", "only the tail from flat index 917504",
             "every 4-th element from flat index 3", "precision: each error is small", None)  # fmt: skip
_CODE = '''import torch
import triton
import triton.language as tl


@triton.jit
def {name}_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """One block of {name}."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, {constant}), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {name}_kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block})
        return y
'''


def episodes(count: int, seed: int = 7, *, samples: int = 4, device: str = "cuda") -> Iterator[Episode]:
    """`count` episodes of count / samples tasks; the same seed gives the same episodes."""
    draw = random.Random(seed)
    for number in range(count):
        yield _episode(draw, number // samples, number % samples, device)


def hostile_episode() -> Episode:
    """An episode in which every text that a model or a task can set tries to be markup."""
    task = _task(0).model_copy(update={"task_id": f"folder/{HOSTILE}", "source": "folder", "reference_code": HOSTILE})
    error = ErrorDetail(category="CORRECTNESS ERROR", message=HOSTILE, detail=HOSTILE, pattern=HOSTILE,
                        position=(0,), expected=HOSTILE, got=HOSTILE, wrong_elements=1, total_elements=4)  # fmt: skip
    # A status that no other episode has, so that any draw holds this one.
    verdict = Verdict.of(
        Status.WRONG_STRUCTURE, Stage.FULL, error=error, evidence=Evidence(kernels=(HOSTILE,), flags=(HOSTILE,))
    )
    answer = Completion(text=HOSTILE, reasoning=HOSTILE, finish_reason=HOSTILE, model=HOSTILE)
    turn = Turn(index=0, prompt_hash="0" * 16, completion=answer, triton_code=f'"""{HOSTILE}"""\nx = 1  # {HOSTILE}',
                feedback_given=HOSTILE, verdict=verdict)  # fmt: skip
    again = turn.model_copy(update={"index": 1, "triton_code": f"{HOSTILE}\nlone surrogate: \ud800"})
    return Episode(
        episode_id="f" * 32, run_id="synthetic", task=task, sample=0, attempt=1, turns=(turn, again),
        stop_reason=StopReason.MAX_TURNS, best_turn=0, messages=(Message(role="user", content=HOSTILE),),
        created_at="2026-01-02T03:04:05+00:00",
    )  # fmt: skip


def write_parts(store: Store, found: Iterator[Episode], per_part: int = 500) -> None:
    """Parts of `per_part` episodes each."""
    held: list[Episode] = []
    for episode in found:
        held.append(episode)
        if len(held) == per_part:
            _put(store, held)
            held = []
    if held:
        _put(store, held)


def _put(store: Store, held: list[Episode]) -> None:
    data = table_bytes(held)
    store.put_if_absent(part_key(data), data)


def _task(number: int) -> Task:
    names = ("relu", "gelu", "softmax", "layer_norm", "matmul", "conv2d", "cumsum", "cross_entropy")
    name, level = names[number % len(names)], 1 + number % 3
    source = "kernelbook" if number % 5 == 4 else "kernelbench"
    # As long as KernelBench's longest names, which have no place to break.
    longer = f"_{name}" * (12 if number % 7 == 0 else 0)
    identity = f"kernelbook/{number}" if source == "kernelbook" else f"kernelbench/{level}/{number}_{name}{longer}"
    code = (
        f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.{name}(x)\n"
    )
    return Task(
        task_id=identity, source=source, level=None if source == "kernelbook" else level, name=name,
        reference_code=code, style="module", entry_point="Model",
        flags=("constant_passes",) if number % 97 == 96 else (),
    )  # fmt: skip


def _episode(draw: random.Random, number: int, sample: int, device: str) -> Episode:
    task = _task(number)
    skill = draw.random() * (0.55 if task.level == 1 else 0.35)
    turns: list[Turn] = []
    stop = StopReason.MAX_TURNS
    if draw.random() < 0.01:
        stop = draw.choice((StopReason.MODEL_ERROR, StopReason.INFRA_ERROR))
    while stop is StopReason.MAX_TURNS and len(turns) < _MAX_TURNS:
        turns.append(_turn(draw, task, len(turns), skill, device))
        if turns[-1].verdict.correct and (turns[-1].verdict.speedup or 1.0) >= 1.0:
            stop = StopReason.SUCCESS_FAST if device == "cuda" else StopReason.SUCCESS_UNTIMED
    ranks = [(turn.verdict.correct, turn.verdict.speedup or 0.0, turn.verdict.compiled, -turn.index) for turn in turns]
    asked = f"Rewrite this module as a Triton kernel.\n\n```python\n{task.reference_code}```\n"
    return Episode(
        episode_id=episode_id(task.task_id, sample, 1, "synthetic"), run_id="synthetic", task=task, sample=sample,
        attempt=1, turns=tuple(turns), stop_reason=stop, best_turn=ranks.index(max(ranks)) if ranks else None,
        messages=(Message(role="system", content="You write Triton kernels."), Message(role="user", content=asked)),
        error=None if turns else "the server went away", created_at=f"2026-01-02T{number % 24:02d}:04:05+00:00",
    )  # fmt: skip


def _turn(draw: random.Random, task: Task, index: int, skill: float, device: str) -> Turn:
    good = draw.random() < skill + 0.08 * index
    status = Status.OK if good else draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    verdict = _verdict(draw, status, device)
    code = None
    if status not in (Status.NO_CODE, Status.TRUNCATED):
        code = _CODE.format(
            name=task.name, constant=draw.choice(("0.0", "0.5", "x * 0.1")), block=draw.choice((256, 512, 1024))
        )
    said = verdict.error.message if verdict.error else ""
    thinking = "The kernel is bound by memory, so one pass over the input should do. " * draw.randint(1, 25)
    tokens = int(draw.lognormvariate(6.6, 0.7))
    return Turn(
        index=index, prompt_hash=f"{draw.getrandbits(64):016x}",
        completion=Completion(
            text=f"Here is the kernel:\n\n```python\n{code}```\n" if code else "I cannot do this.", reasoning=thinking,
            finish_reason="length" if status is Status.TRUNCATED else "stop", model="synthetic-32b",
            usage=Usage(prompt_tokens=900 + 700 * index, completion_tokens=tokens), latency_s=tokens / 60,
        ),
        triton_code=code, extraction_rule="fence" if code else None,
        feedback_given=None if good else f"{CATEGORY_BY_STATUS[status]}: {said}\nWrite the whole file again.",
        verdict=verdict,
        times=TurnTimes(model_queue_s=draw.random(), model_s=tokens / 60, bench_s=verdict.seconds["total"] + 0.2),
    )  # fmt: skip


def _verdict(draw: random.Random, status: Status, device: str) -> Verdict:
    env = Environment(device=device, gpu="H100" if device == "cuda" else None, torch="2.13.0", triton="3.7.1")
    seconds = {"queue": draw.random(), "load": 0.3, "compile": draw.lognormvariate(0, 0.5), "check": 0.4}
    seconds["total"] = sum(seconds.values())
    if status is Status.OK:
        return _correct(draw, env, seconds, device)
    error = ErrorDetail(category=CATEGORY_BY_STATUS[status], message=f"{status.value.replace('_', ' ')} in the kernel")
    if status is Status.MISMATCH:
        error = _mismatch(draw)
    ran = status in (Status.MISMATCH, Status.WRONG_SHAPE, Status.NONFINITE, Status.HACK)
    evidence = Evidence(kernel_launches=3, kernels=("kernel",)) if ran else Evidence()
    return Verdict.of(status, _STAGES[status], tests_total=8, error=error, evidence=evidence, env=env, seconds=seconds)


def _correct(draw: random.Random, env: Environment, seconds: dict[str, float], device: str) -> Verdict:
    fields = {"tests_passed": 8, "tests_total": 8, "env": env, "seconds": seconds}
    if device != "cuda":
        return Verdict.of(Status.OK, Stage.FULL, **fields)
    speedup = draw.lognormvariate(0.1, 0.6)

    def timing(median: float) -> Timing:
        samples = tuple(median * draw.gauss(1, 0.01) for _ in range(10))
        return Timing(median_ms=median, trimmed_mean_ms=median, std_ms=median / 100, n=10, samples_ms=samples)

    return Verdict.of(
        Status.OK, Stage.TIMING, trusted=True, speedup=speedup, speedup_low=speedup * 0.98, speedup_high=speedup * 1.02,
        kernel_time=timing(1 / speedup), reference_time=timing(1.0),
        evidence=Evidence(kernel_launches=9, kernels=("kernel",)),
        **fields,
    )  # fmt: skip


def _mismatch(draw: random.Random) -> ErrorDetail:
    total, pattern = 1_048_576, draw.choice(_PATTERNS)
    wrong = {_PATTERNS[0]: total, _PATTERNS[1]: 131_072, _PATTERNS[2]: 262_144}.get(
        pattern, draw.randint(1, total // 3)
    )
    return ErrorDetail(
        category="CORRECTNESS ERROR", message=f"out differs in {wrong} of {total} elements", output="out",
        position=(draw.randrange(1024), draw.randrange(1024)), expected="0.73184", got="-1.2", pattern=pattern,
        max_abs_error=draw.random(), max_rel_error=float("inf"), wrong_elements=wrong, total_elements=total,
    )  # fmt: skip


def open_folder(path: Path, count: int, *, hostile: bool = True, device: str = "cuda") -> Store:
    """A store in a new folder with `count` episodes, the hostile one among them where asked for."""
    store = open_store(str(path))
    write_parts(store, episodes(count - hostile, device=device))
    if hostile:
        _put(store, [hostile_episode()])
    return store
