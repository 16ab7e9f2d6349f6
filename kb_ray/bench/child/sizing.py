"""How many bytes a reference would take, found without taking them: one run on PyTorch's meta device.

Runs in the sandboxed process that has the reference loaded, for a few seconds at most. What it says is that
program's word: good for leaving a giant out, never for a verdict.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kb_ray.bench.child.loading import Program
from kb_ray.bench.child.tree import DTYPES
from kb_ray.tasks.quality import GUESSED_TIMES

SECONDS = 4.0
"""For one estimate. Some networks take minutes: without values each step of a loop is taken in Python."""
_IMPORT_SECONDS = 0.2
"""Between looks whether an import that must not be broken off is done."""
_RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


def estimate(program: Program, limit: int | None = None, seconds: float = SECONDS) -> dict[str, int]:
    """Bytes of `inputs`, `weights` and `outputs`; the rest ends where they are above `limit` together.

    What cannot be found out, for it depends on values or takes longer than `seconds`, is left out. Where that is
    not the inputs, `guessed` stands in for it: so many bytes as a few such inputs.
    """
    found: dict[str, int] = {}
    try:
        with _alarm(seconds), torch.device("meta"), _Unrolled(), torch.no_grad():
            for name, value in _parts(program):
                found[name] = _bytes(value)
                if limit is not None and sum(found.values()) > limit:
                    break
            return found
    except (Exception, _Late):
        if "inputs" in found:
            found["guessed"] = GUESSED_TIMES * found["inputs"]
    return found


def _parts(program: Program) -> Iterator[tuple[str, Any]]:
    inputs = _inputs(program)
    yield "inputs", inputs
    function = getattr(program.module, program.entry_name)
    if program.request["style"] == "module":
        args, kwargs = program.init_inputs()
        function = function(*args, **kwargs)
        yield "weights", function.state_dict() if isinstance(function, torch.nn.Module) else None
    yield "outputs", function(*inputs)


class _Late(BaseException):
    """The estimate takes too long. No Exception: a reference that catches all of those must not go on."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raises _Late in the block once the time is over. In a process's main thread only."""

    def ring(number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            # PyTorch imports much at a first step; half of it would fail at whatever comes next in this process.
            signal.setitimer(signal.ITIMER_REAL, _IMPORT_SECONDS)
        else:
            raise _Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class _Unrolled(TorchFunctionMode):  # type: ignore[misc]
    """Recurrent layers answer at once: on the meta device PyTorch takes them apart, step by step and in Python."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RECURRENT and len(args) > 8:
            return _recurrent(args)
        return func(*args, **(kwargs or {}))


def _recurrent(args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    """Empty tensors of the shapes of (output, last states...); `args` as torch.nn's layers give them.

    (input, states, weights, biases, layers, dropout, training, both ways, batch first), or for packed sequences
    (data, lengths, states, weights, biases, layers, dropout, training, both ways).
    """
    packed = not isinstance(args[3], bool)
    states = args[2] if packed else args[1]
    both_ways = args[8] if packed else args[7]
    states = states if isinstance(states, (list, tuple)) else (states,)
    output = args[0].new_empty((*args[0].shape[:-1], states[0].shape[-1] * (2 if both_ways else 1)))
    return output, *(torch.empty_like(state) for state in states)


def _inputs(program: Program) -> list[Any]:
    shapes = program.request["input_shapes"]
    if shapes:
        return [torch.empty(shape, dtype=DTYPES[dtype]) for shape, dtype in shapes.values()]
    return list(program.module.get_inputs())


def _bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
