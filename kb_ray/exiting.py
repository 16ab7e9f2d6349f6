"""How a command without an event loop ends on a signal: through its `finally` clauses, so that nothing stays half done.

Knows nothing of what a command has to clear away.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def exit_on_signals() -> None:
    """SIGTERM and SIGINT raise SystemExit with 128 + their number in the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
