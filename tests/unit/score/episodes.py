"""Episodes for tests of metrics: a task, and its verdicts turn by turn. Only values that metrics look at."""

from __future__ import annotations

from collections.abc import Sequence

from kb_ray.records import (
    Completion,
    Environment,
    Episode,
    Evidence,
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
from kb_ray.refine import best_turn

TOKENS = 100
GPU_S = 2.0


def timing(ms: float) -> Timing:
    return Timing(median_ms=ms, trimmed_mean_ms=ms, std_ms=0.1, n=2, samples_ms=(ms, ms))


def ok(speedup: float | None, *, trusted: bool = True, flags: Sequence[str] = ()) -> Verdict:
    """A correct kernel; None: on a CPU, where nothing is timed and nothing trusted."""
    on_gpu = speedup is not None
    return Verdict.of(
        Status.OK,
        Stage.TIMING if on_gpu else Stage.FULL,
        speedup=speedup,
        trusted=trusted and on_gpu,
        kernel_time=timing(6.0 / speedup) if speedup else None,
        reference_time=timing(6.0) if speedup else None,
        evidence=Evidence(flags=tuple(flags)),
        env=Environment(device="cuda" if on_gpu else "cpu"),
        seconds={"queue": 5.0, "total": 5.0 + GPU_S},
    )


def bad(status: Status = Status.MISMATCH, stage: Stage = Stage.FULL, device: str = "cuda") -> Verdict:
    """A verdict on a wrong kernel, which took no GPU time worth telling."""
    return Verdict.of(status, stage, env=Environment.model_validate({"device": device}))


NO_CODE = Verdict.of(Status.NO_CODE, Stage.EXTRACT)


def episode(
    name: str,
    *verdicts: Verdict,
    sample: int = 0,
    level: int | None = 1,
    source: str = "kernelbench",
    stop: StopReason = StopReason.MAX_TURNS,
    flags: Sequence[str] = (),
    problem_id: int | None = None,
) -> Episode:
    task = Task(
        task_id=f"{source}/{level}/{name}", source=source, level=level, name=name, problem_id=problem_id,
        reference_code="", style="module", entry_point="Model", flags=tuple(flags),
    )  # fmt: skip
    turns = tuple(
        Turn(
            index=index,
            prompt_hash="",
            completion=Completion(
                text="", finish_reason="stop", model="m", usage=Usage(prompt_tokens=10, completion_tokens=TOKENS)
            ),
            triton_code=None if verdict.status is Status.NO_CODE else "code",
            feedback_given=None,
            verdict=verdict,
            times=TurnTimes(model_s=3.0),
        )
        for index, verdict in enumerate(verdicts)
    )
    return Episode(
        episode_id=f"{source}-{level}-{name}-{sample}", run_id="r", task=task, sample=sample, attempt=1, turns=turns,
        stop_reason=stop, best_turn=best_turn(turns), messages=(), created_at="",
    )  # fmt: skip
