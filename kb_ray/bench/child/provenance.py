"""What can be seen of a candidate's own kernels from inside its process.

Hooks are installed once in the zygote: launches of JIT functions defined in the candidate's file are
counted when they complete, and a shared byte says whether a launch is under way (so that a SIGSEGV can
be told from a crash elsewhere). A ledger counts the torch operators that compute. All of it could be
forged by the code it watches: it may convict, never acquit.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode


class State:
    """One shared page: byte 0 is 1 while a launch is under way. The judge reads it after a death."""

    SIZE = mmap.PAGESIZE

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, self.SIZE)

    @property
    def launching(self) -> bool:
        return self._page[0] == 1

    @launching.setter
    def launching(self, value: bool) -> None:
        self._page[0] = 1 if value else 0

    def close(self) -> None:
        self._page.close()


class Watch:
    """Counts of one candidate process. `file` is the path of the candidate's source."""

    def __init__(self) -> None:
        self.file: str | None = None
        self.state: State | None = None
        self.launches: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        """Operators called by a kernel's own body, which only the interpreter lets it do."""
        self.depth = 0

    @contextmanager
    def launch(self, function: Any) -> Iterator[None]:
        self.depth += 1
        if self.state is not None:
            self.state.launching = True
        try:
            yield
            code = getattr(function, "__code__", None)
            if code is not None and code.co_filename == self.file:
                self.launches[function.__name__] += 1
        finally:
            self.depth -= 1
            if self.state is not None and self.depth == 0:
                self.state.launching = False


WATCH = Watch()

# Operators that make, move or relabel memory without computing values from values.
_MOVES = (
    "empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "view", "_unsafe_view", "reshape",
    "as_strided", "expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "slice", "select", "split",
    "unbind", "chunk", "detach", "alias", "clone", "contiguous", "copy_", "_to_copy", "zeros", "zeros_like",
    "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill_", "zero_", "set_",
    "resize_", "lift_fresh", "narrow", "unflatten", "movedim", "is_same_size", "_local_scalar_dense", "item",
    "equal", "sym_size", "sym_stride", "sym_numel", "_reshape_alias", "view_as_real", "view_as_complex",
)  # fmt: skip


class Ledger(TorchDispatchMode):  # type: ignore[misc]
    """Counts torch operators that compute while it is active, outside of kernel launches and inside apart."""


def _count(self: Ledger, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    name = func._schema.name.removeprefix("aten::")
    if name not in _MOVES:
        (WATCH.inside if WATCH.depth else WATCH.operators)[name] += 1
    return func(*args, **(kwargs or {}))


# Set afterwards: a method of the class body is wrapped so that its first call imports torch._dynamo.
Ledger.__torch_dispatch__ = _count


def install(cuda: bool) -> None:
    """Hook launches for this process and all that it forks."""
    if cuda:
        _hook_jit()
    else:
        _hook_interpreter()


def _hook_jit() -> None:
    jit = triton.runtime.jit.JITFunction
    original = jit.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        with WATCH.launch(self.fn):
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)

    jit.run = run


def _hook_interpreter() -> None:
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    original = interpreter.GridExecutor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with WATCH.launch(self.fn):
            return original(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = call

    def plain(kernel_call: Any, quantiles: Any = None, **_: Any) -> list[float]:
        """Without a device there is nothing to measure: run once, so that every configuration is tried."""
        kernel_call()
        return [1.0, 1.0, 1.0]

    Autotuner.do_bench = property(lambda self: plain)


def poison_allocations(on: bool) -> None:
    """Fill fresh allocations with NaN while outputs are checked; plain allocations while timing."""
    # The public use_deterministic_algorithms() imports torch._inductor first, seconds in every child.
    torch._C._set_deterministic_algorithms(on, warn_only=True)
    torch._C._set_deterministic_fill_uninitialized_memory(on)
