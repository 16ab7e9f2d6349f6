"""How a command to a sandboxed process can end without an answer, and what a process's own end says.

Records and one decision; whoever waits for the process finds out what there is to decide from.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field
from typing import Any

from kb_ray.bench.child.watchdog import Excess


class Raised(Exception):
    """The child's code raised; `info` is what `serving.describe` said of it."""

    def __init__(self, info: dict[str, Any]) -> None:
        super().__init__(str(info.get("message", "")))
        self.info = info


class Died(Exception):
    """The child's process ended, or broke its channel, before it answered."""

    def __init__(self, signal_number: int | None, exit_code: int | None, launching: bool, log: str) -> None:
        super().__init__(f"signal {signal_number}" if signal_number else f"exit code {exit_code}")
        self.signal_number, self.exit_code, self.launching, self.log = signal_number, exit_code, launching, log


class TimedOut(Exception):
    """The child did not answer within its time."""


@dataclass
class Ending:
    """How a child ended, told by its zygote: `status` as waitpid gives it, once `event` is set."""

    event: threading.Event = field(default_factory=threading.Event)
    status: int | None = None

    @property
    def killed(self) -> bool:
        """Whether it ended by SIGKILL, whoever sent it."""
        return self.status is not None and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


def explain(status: int | None, over: Excess | None, launching: bool, log: str) -> Raised | Died:
    """What an end means. `status`: as waitpid gives it, None where nobody knows; `over`: why it was killed."""
    if over is not None and over.kind == "memory":
        # What an allocation that fails in time says; here it was noticed too late for that.
        return Raised({"type": "MemoryError", "bases": ["MemoryError"], "message": over.message})
    if over is not None:
        log += f"\nkilled: {over.message}"
    if status is None:
        return Died(None, None, launching, log)
    if os.WIFSIGNALED(status):
        return Died(os.WTERMSIG(status), None, launching, log)
    return Died(None, os.WEXITSTATUS(status), launching, log)
