"""Stores for tests of exports: episodes told turn by turn, with conversations as the drive writes them.

A turn is told in a word: `fast`, `slow`, `twice` (correct, trusted, 3x, 0.5x, 2x), `cpu` (correct, untimed), `odd`
(correct, untrusted), `wrong`, `broken` (does not compile), `hack`, `blank` (no code), `ours` (our own failure).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kb_ray.prompts.opening import prompt_hash
from kb_ray.records import (
    Completion,
    Environment,
    Episode,
    ErrorDetail,
    Evidence,
    Message,
    Sampling,
    Stage,
    Status,
    StopReason,
    Task,
    Timing,
    Turn,
    Usage,
    Verdict,
)
from kb_ray.refine import best_turn
from kb_ray.retrieved import Retrieved, RetrievedExample
from kb_ray.traces.layout import part_key
from kb_ray.traces.run import episode_id
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import LocalStore, Store

GPU = Environment(device="cuda", gpu="NVIDIA H100 80GB HBM3")
CPU = Environment(device="cpu")
SPEEDUPS = {"fast": 3.0, "slow": 0.5, "twice": 2.0}


def verdict(word: str) -> Verdict:
    if word in SPEEDUPS:
        return Verdict.of(
            Status.OK, Stage.TIMING, speedup=SPEEDUPS[word], trusted=True, env=GPU, tests_passed=5, tests_total=5,
            kernel_time=timing(1.0 / SPEEDUPS[word]), reference_time=timing(1.0),
        )  # fmt: skip
    if word == "cpu":
        return Verdict.of(Status.OK, Stage.FULL, env=CPU, tests_passed=5, tests_total=5)
    if word == "odd":
        odd = Evidence(flags=("above_ceiling",))
        return Verdict.of(Status.OK, Stage.TIMING, speedup=900.0, env=GPU, evidence=odd)
    status, stage, category = {
        "wrong": (Status.MISMATCH, Stage.FULL, "CORRECTNESS ERROR"),
        "broken": (Status.COMPILE_ERROR, Stage.COMPILE, "COMPILATION ERROR"),
        "hack": (Status.HACK, Stage.FULL, "NOT A REAL KERNEL"),
        "blank": (Status.NO_CODE, Stage.EXTRACT, "FORMAT ERROR"),
        "ours": (Status.INFRA_ERROR, Stage.LOAD, "INFRASTRUCTURE"),
    }[word]
    error = ErrorDetail(category=category, message=f"{word} at line 3")
    trusted = word != "ours"
    return Verdict.of(status, stage, trusted=trusted, env=GPU if word != "blank" else Environment(), error=error)


def timing(ms: float) -> Timing:
    return Timing(median_ms=ms, trimmed_mean_ms=ms, std_ms=0.0, n=1, samples_ms=(ms,))


def task(
    name: str = "relu",
    source: str = "builtin",
    level: int | None = 1,
    number: int | None = None,
    flags: Sequence[str] = (),
) -> Task:
    return Task(
        task_id=f"{source}/{name}", source=source, level=level, name=name, problem_id=number,
        reference_code=f"def reference_impl(x):\n    return torch.{name}(x)\n", style="function",
        entry_point="reference_impl", flags=tuple(flags),
    )  # fmt: skip


def code(of: Task, word: str, sample: int, index: int) -> str:
    return f"@triton.jit\ndef {of.name}_kernel(x):\n    {word} = {sample} * {index} + {hash_of(of.name, word)}\n"


def hash_of(*words: str) -> int:
    return sum(map(ord, "".join(words)))


def story(
    *words: str, of: Task | None = None, sample: int = 0, attempt: int = 1, stop: StopReason | None = None
) -> Episode:
    """An episode whose turns end as told; its last message is the last answer, as in a real one."""
    of = of or task()
    messages = [Message(role="system", content="You write kernels."), Message(role="user", content=of.reference_code)]
    turns: list[Turn] = []
    for index, word in enumerate(words):
        kernel = None if word == "blank" else code(of, word, sample, index)
        text = f"Answer {index} of sample {sample}.\n```python\n{kernel}```" if kernel else "I cannot."
        told = f"The verdict was {word}." if index < len(words) - 1 else None
        completion = Completion(
            text=text, reasoning=f"thought {index}", finish_reason="stop", model="tiny",
            usage=Usage(prompt_tokens=9, completion_tokens=7), sampling=Sampling(seed=sample),
        )  # fmt: skip
        turns.append(
            Turn(
                index=index, prompt_hash=prompt_hash(messages), completion=completion, triton_code=kernel,
                extraction_rule="fence" if kernel else None, feedback_given=told, verdict=verdict(word),
            )
        )  # fmt: skip
        messages.append(Message(role="assistant", content=text, reasoning=completion.reasoning))
        if told:
            messages.append(Message(role="user", content=told))
    solved = words and words[-1] in ("fast", "twice")
    reason = stop or (StopReason.SUCCESS_FAST if solved else StopReason.MAX_TURNS)
    return Episode(
        episode_id=episode_id(of.task_id, sample, attempt, "f"), run_id="run-1", task=of, sample=sample,
        attempt=attempt, turns=tuple(turns), stop_reason=reason, best_turn=best_turn(tuple(turns)),
        messages=tuple(messages), created_at="2026-01-02T03:04:05+00:00",
    )  # fmt: skip


def with_examples(told: Episode, *ids: str) -> Episode:
    """The story again, as if its opening prompt showed these examples."""
    shown = tuple(RetrievedExample(example_id=name, language="cuda", score=0.5, overlap=0.1) for name in ids)
    given = Retrieved(index="ix", wanted=2, examples=shown, leak_overlap=0.9, leaks=0)
    return told.model_copy(update={"retrieved": given})


def store_of(folder: Path, *episodes: Episode, part_rows: int = 2) -> LocalStore:
    store = LocalStore(str(folder))
    fill(store, *episodes, part_rows=part_rows)
    return store


def fill(store: Store, *episodes: Episode, part_rows: int = 2) -> None:
    for start in range(0, len(episodes), part_rows):
        data = table_bytes(episodes[start : start + part_rows])
        store.put_if_absent(part_key(data), data)
