"""The loop in which a sandboxed process answers its judge, and what it says of an exception.

Runs beside code that may change any of it, so that nothing it says is trusted. All imports are at the top: a
confined process cannot read kb_ray's files any more.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

import torch

from kb_ray.bench.child import provenance
from kb_ray.bench.child.frames import Channel, Frame, FrameError, Kind
from kb_ray.bench.child.message import pack, unpack
from kb_ray.bench.child.program import Server


def serve(channel: Channel, level: str, cuda: bool, state: provenance.State, scratch: str) -> None:
    """Answer commands until the judge closes the channel."""
    provenance.WATCH.state = state
    provenance.poison_allocations(True)
    server = Server(channel, level, cuda, scratch)
    if cuda:
        torch.cuda.set_device(0)
        torch.cuda.synchronize()
    channel.send(Kind.READY, pack(level=level))
    while True:
        try:
            frame = channel.recv()
        except FrameError:
            os._exit(0)
        channel.send(*_answer(server, frame))


def _answer(server: Server, frame: Frame) -> tuple[int, bytes]:
    try:
        return Kind.DONE, pack(**server.answer(frame.kind, unpack(frame.payload), frame.fds))
    # SystemExit and KeyboardInterrupt included: a candidate that raises them has failed, not finished.
    except BaseException as error:
        return Kind.RAISED, pack(**describe(error))


def describe(error: BaseException) -> dict[str, Any]:
    """What an exception says, bounded: type, message, and the last line of the loaded code on its way."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == provenance.WATCH.file]
    cause = error.__cause__
    if own and cause is not None and type(error).__name__ == "InterpreterError":
        own = [f for f in traceback.extract_tb(cause.__traceback__) if f.filename == provenance.WATCH.file] or own
    line = own[-1].lineno if own else getattr(error, "lineno", None)
    return {
        "type": type(error).__name__,
        "bases": [base.__name__ for base in type(error).__mro__[:8]],
        "cause": type(cause).__name__ if cause is not None else "",
        "message": _said(cause if type(error).__name__ == "InterpreterError" and cause else error)[:4000],
        "line": line if isinstance(line, int) else None,
        "trace": "".join(traceback.format_exception(error))[-6000:],
        "from_own_code": bool(own),
    }


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "its message could not be made"
