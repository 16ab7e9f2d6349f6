"""What the tests of the state machine are made of: a task, an opening, answers and verdicts."""

from __future__ import annotations

from kb_ray.records import Completion, ErrorDetail, Message, Stage, Status, Task, Verdict

TASK = Task(
    task_id="folder/halve",
    source="folder",
    name="halve",
    reference_code="def reference_impl(x):\n    return x / 2\n",
    style="function",
    entry_point="reference_impl",
)
OPENING = (Message(role="system", content="rules"), Message(role="user", content="task"))
CODE = "def triton_kernel_wrapper(x):\n    return kernel[(1,)](x)\n"


def completion(text: str = f"```python\n{CODE}```", finish_reason: str = "stop") -> Completion:
    return Completion(text=text, reasoning="because", finish_reason=finish_reason, model="m")


def ok(speedup: float | None = None, trusted: bool = True) -> Verdict:
    return Verdict.of(Status.OK, Stage.TIMING, speedup=speedup, trusted=trusted, tests_passed=5, tests_total=5)


def failed(status: Status = Status.MISMATCH, stage: Stage = Stage.FULL, passed: int = 0) -> Verdict:
    error = ErrorDetail(category="X", message="it failed")
    return Verdict.of(status, stage, tests_passed=passed, tests_total=5, error=error)
