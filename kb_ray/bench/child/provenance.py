"""What can be seen of a candidate's own kernels from inside its process.

Hooks are installed once in the zygote: launches of JIT functions defined in the candidate's file are
counted when they complete, and a shared byte says whether a launch is under way (so that a SIGSEGV can
be told from a crash elsewhere). A ledger counts the torch operators that compute. All of it could be
forged by the code it watches: it may convict, never acquit.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

NOISE = 0.6180339887
"""A finite value that is no answer to anything."""
MAX_HANDED = 64
"""Tensors handed to launches of one call that are kept for a look, at most."""


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
        self.flops = 0
        """Floating-point operations of products and convolutions that the ledger saw."""
        self.depth = 0
        self.ablated = False
        """Whether launches of the candidate's own kernels do nothing but note what they were given."""
        self.noise = False
        """Whether a launch that does nothing fills what nobody has written yet, as if it had computed something."""
        self.handed: list[torch.Tensor] = []
        self.spans: list[tuple[Any, Any]] | None = None
        """Event pairs around launches of the candidate's own kernels, where they are wanted."""

    def own(self, function: Any) -> bool:
        code = getattr(function, "__code__", None)
        return code is not None and code.co_filename == self.file

    def skip(self, function: Any, arguments: Iterable[Any]) -> bool:
        """Whether this launch is to do nothing; what it would have been given is kept then."""
        if not self.ablated or not self.own(function):
            return False
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        self.handed += tensors[: MAX_HANDED - len(self.handed)]
        for tensor in tensors if self.noise else ():
            if tensor.is_floating_point() and bool(torch.isnan(tensor).all()):
                tensor.fill_(NOISE)
        return True

    @contextmanager
    def launch(self, function: Any) -> Iterator[None]:
        self.depth += 1
        if self.state is not None:
            self.state.launching = True
        own = self.own(function)
        span = self._begin_span() if own else None
        try:
            yield
            if own:
                self.launches[function.__name__] += 1
            if span is not None and self.spans is not None:
                # Kept only now: a launch that fails, as tuning may let it, never reaches the end of its span.
                span[1].record()
                self.spans.append(span)
        finally:
            self.depth -= 1
            if self.state is not None and self.depth == 0:
                self.state.launching = False

    def _begin_span(self) -> Any:
        """Events of a span of GPU time, the first recorded now; None where spans are not wanted."""
        if self.spans is None or self.depth > 1:
            return None
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        return start, end


WATCH = Watch()

# Operators that make, move or relabel memory without computing values from values.
_MOVES = (
    "empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "view", "_unsafe_view", "reshape",
    "as_strided", "expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "slice", "select", "split",
    "unbind", "chunk", "detach", "alias", "clone", "contiguous", "copy_", "_to_copy", "zeros", "zeros_like",
    "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill_", "zero_", "set_",
    "resize_", "lift_fresh", "narrow", "unflatten", "movedim", "is_same_size", "_local_scalar_dense", "item",
    "cat", "stack", "constant_pad_nd", "arange", "equal",
    "sym_size", "sym_stride", "sym_numel", "_reshape_alias", "view_as_real", "view_as_complex",
)  # fmt: skip


_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "addbmm": 1, "mv": 0, "addmv": 1}
"""Operators that multiply matrices -> position of the left one among their arguments."""
_CONVOLUTIONS = ("convolution", "_convolution", "convolution_overrideable")


class Ledger(TorchDispatchMode):  # type: ignore[misc]
    """Counts torch operators that compute while it is active, outside of kernel launches and inside apart."""


def _count(self: Ledger, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    name = func._schema.name.removeprefix("aten::")
    if name not in _MOVES:
        (WATCH.inside if WATCH.depth else WATCH.operators)[name] += 1
    result = func(*args, **(kwargs or {}))
    WATCH.flops += _flops(name, args, result)
    return result


# Set afterwards: a method of the class body is wrapped so that its first call imports torch._dynamo.
Ledger.__torch_dispatch__ = _count


def _flops(name: str, args: Any, result: Any) -> int:
    """Multiplications and additions of the operators that have enough of them to matter; 0 for others."""
    try:
        if name in _PRODUCTS:
            return 2 * int(result.numel()) * int(args[_PRODUCTS[name]].shape[-1])
        if name in _CONVOLUTIONS:
            # Each element of a result, or of the input where the convolution is transposed, meets one filter.
            filters, transposed = args[1], args[6]
            elements = (args[0] if transposed else result).numel()
            return 2 * int(elements) * int(filters.numel() // max(filters.shape[0], 1))
    except (AttributeError, IndexError, TypeError):
        return 0
    return 0


_TO_HOST = ("numpy", "tolist", "__array__")
"""Ways in which a tensor's values get to Python, which no operator shows."""


def _hook_host(name: str) -> None:
    original = getattr(torch.Tensor, name)

    def taken(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not WATCH.depth:
            WATCH.operators[f"Tensor.{name}"] += 1
        return original(self, *args, **kwargs)

    setattr(torch.Tensor, name, taken)


def install(cuda: bool) -> None:
    """Hook launches, and what leaves tensors for Python, for this process and all that it forks."""
    for name in _TO_HOST:
        _hook_host(name)
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
        if WATCH.skip(self.fn, (*args, *kwargs.values())):
            # Whoever keeps the compiled handle still gets one.
            return original(self, *args, grid=grid, warmup=True, **kwargs)
        with WATCH.launch(self.fn):
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)

    jit.run = run
    _hook_handles()


def _hook_handles() -> None:
    """Compiled handles launch past `JITFunction.run`."""
    compiled = triton.compiler.compiler.CompiledKernel
    original = compiled.__getitem__

    def launcher(self: Any, grid: Any) -> Any:
        launch, function = original(self, grid), getattr(getattr(self.src, "fn", None), "fn", None)

        def run(*args: Any, **kwargs: Any) -> Any:
            if WATCH.skip(function, (*args, *kwargs.values())):
                return None
            with WATCH.launch(function):
                return launch(*args, **kwargs)

        return run

    compiled.__getitem__ = launcher


def _hook_interpreter() -> None:
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    original = interpreter.GridExecutor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if WATCH.skip(self.fn, (*args, *kwargs.values())):
            return None
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
