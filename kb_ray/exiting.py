"""How a process ends: with its command's exit code, and on a signal through the `finally` clauses of a command without
an event loop, so that nothing stays half done.

Knows nothing of what a command has to clear away.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def exit_on_signals() -> None:
    """SIGTERM and SIGINT raise SystemExit with 128 + their number in the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[Callable[[], int]]:
    """SIGTERM interrupts as Ctrl-C does, within an event loop too. Yields what tells the exit code of a process that
    was interrupted. Entered before Ray is joined, which keeps it. For the main thread; elsewhere nothing changes.

    Ctrl-C interrupts also where it was ignored, as in what a script starts by `&`: an event loop would otherwise have
    no way of its own to be interrupted.
    """
    received = list[int]()

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    main = threading.current_thread() is threading.main_thread()
    ignored = main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    before = signal.signal(signal.SIGTERM, interrupt) if main else None
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield lambda: 128 + (received or [signal.SIGINT])[0]
    except SystemExit as ended:
        if _is_of_ray(ended):
            raise SystemExit(128 + signal.SIGTERM) from ended
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _is_of_ray(ended: SystemExit) -> bool:
    """Whether Ray's own handlers of SIGTERM, in place while it starts, ended the process: their exit codes are 15 and
    1."""
    last = ended.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_name == "sigterm_handler"


@contextmanager
def ctrl_c_at_once() -> Iterator[None]:
    """A Ctrl-C raises KeyboardInterrupt where the program is: for work that holds up an event loop, which would wait
    for that work to end. For the main thread; elsewhere nothing changes."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


def end(main: Callable[[], int]) -> NoReturn:
    """Ends the process with the exit code of `main`; 128 + SIGINT after a Ctrl-C that it does not catch itself, and
    128 + SIGPIPE where whoever read the output has enough of it (`| head`)."""
    code: int | str | None
    try:
        try:
            code = main()
        except SystemExit as stopped:
            code = stopped.code
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)
