"""A step of work on a GPU, recorded once as a CUDA graph and replayed; and the memory that recordings work in.

Knows no network: what a step does, and what it changes in place, is its caller's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_KEPT = 1 << 30
"""Bytes that are kept at most from one recording to the next; whoever judges on the same card has the rest."""
_LOW = 2 << 30
"""Bytes free below which cached memory is given back first: while a step is recorded PyTorch may not do so itself."""
_broken: list[Any] = []
"""Recordings that failed: the allocator may go on asking them whether a stream is theirs, so they are never freed."""


class RecordingFailed(Exception):
    """The step was not recorded, nothing of it was done, and the GPU can be used as before."""


class Looks(TorchDispatchMode):  # type: ignore[misc]
    """Notes whether what is done meanwhile decides by the numbers of a tensor: a recording would keep one decision, and
    the GPU cannot be asked for numbers while it is recorded. Of this thread alone."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # An index has the second tag whatever it is; one that is a mask lets the recording fail.
        shaped = torch.Tag.dynamic_output_shape in func.tags and func is not torch.ops.aten.index.Tensor
        self.any = self.any or shaped or torch.Tag.data_dependent_output in func.tags
        return func(*args, **(kwargs or {}))


class Memory:
    """What recordings of one GPU work in, kept from one to the next. `stream`: on which it is asked for."""

    def __init__(self, device: torch.device, stream: Any) -> None:
        with torch.cuda.device(device):
            self._pool = torch.cuda.MemPool()
        # PyTorch's allocator of pinned memory refuses the next recording once none is left of those before: this one
        # stays, and is never replayed.
        self._keeper, _ = _recorded(lambda: torch.zeros(1, device=device), device, stream, self.id)

    @property
    def id(self) -> tuple[int, int]:
        """By which the allocator knows it."""
        found: tuple[int, int] = self._pool.id
        return found

    def held(self) -> int:
        """Bytes."""
        return sum(segment["total_size"] for segment in torch.cuda.memory_snapshot(self.id))

    def close(self) -> None:
        """Gives all of it back; there must be no other recording any more."""
        self._keeper.reset()
        # Its destructor empties this pool alone.
        del self._pool


class Place:
    """Where recordings of one GPU work, one after another: a stream and memory of their own.

    Always the same stream, since the allocator gives memory out again only on the stream that it was first asked for
    on. Memory stays from one recording to the next, up to a bound: to ask the driver each time takes a lock that is
    held most of the time where candidates are judged on the same host.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)
        self._memory: Memory | None = None

    def pool(self) -> tuple[int, int]:
        """The id of its memory, which is that of the former recording; there must be none that is still replayed."""
        if self._memory is None:
            self._memory = Memory(self.device, self.stream)
        return self._memory.id

    def trim(self) -> None:
        """Gives memory back where there is much of it."""
        if self._memory is not None and self._memory.held() > _KEPT:
            self.drop()

    def drop(self) -> None:
        """Uses other memory from now on."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None


class Places:
    """Places of this process that no recording is in: two that are replayed in turn would overwrite each other."""

    def __init__(self, make: Callable[[torch.device], Place] = Place) -> None:
        self._make, self._lock = make, threading.Lock()
        self._free: dict[torch.device, list[Place]] = {}

    def take(self, device: torch.device) -> Place:
        """One for the caller alone, the last that was given back where there is one."""
        with self._lock:
            free = self._free.setdefault(device, [])
            return free.pop() if free else self._make(device)

    def give_back(self, place: Place) -> None:
        """Its recording is gone."""
        place.trim()
        with self._lock:
            self._free.setdefault(place.device, []).append(place)


_places = Places()


class Recording:
    """A recorded step. Recording does nothing of it: the first `replay` does."""

    def __init__(self, step: Callable[[], Tensor], device: torch.device, places: Places = _places) -> None:
        """`device` with its index. RecordingFailed where the step cannot be recorded."""
        self._places = places
        self._place = places.take(device)
        try:
            _make_room(device)
            self._graph, self._result = _recorded(step, device, self._place.stream, self._place.pool())
        except BaseException as error:
            self._place.drop()
            places.give_back(self._place)
            if isinstance(error, RuntimeError):
                raise RecordingFailed(str(error).partition("\n")[0]) from error
            raise

    def replay(self) -> Tensor:
        """What the step returns; filled anew by each replay."""
        self._graph.replay()
        return self._result

    def close(self) -> None:
        """Leaves its memory to the next recording: what `replay` returned may not be read any more."""
        self._graph.reset()
        del self._result
        self._places.give_back(self._place)


def _make_room(device: torch.device) -> None:
    free, _ = torch.cuda.mem_get_info(device)
    if free < _LOW:
        torch.cuda.empty_cache()


def _recorded(
    step: Callable[[], Tensor], device: torch.device, stream: Any, pool: tuple[int, int]
) -> tuple[Any, Tensor]:
    """(graph, what `step` returned). `pool`: the id of the memory that it works in.

    Not by `torch.cuda.graph`, which gives all cached memory back before, and collects garbage.
    """
    graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        try:
            # Other threads of this process may talk to the GPU meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            result = step()
            graph.capture_end()
        except BaseException:
            if _abandon(graph, device, pool):
                # Random numbers count on being recorded until a recording has ended as it should.
                Memory(device, stream).close()
            raise
    current.wait_stream(stream)
    return graph, result


def _abandon(graph: Any, device: torch.device, pool: tuple[int, int]) -> bool:
    """Ends a recording that failed, whatever state it is in: the allocator would else believe that it goes on, and
    give no cached memory back for as long as the process lives. Whether the driver had broken it off."""
    broken = False
    try:
        graph.capture_end()
    except RuntimeError:
        # Of a recording that the driver has broken off this is raised before the allocator is told.
        broken = True
        _broken.append(graph)
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(device.index, pool)
            torch._C._cuda_releasePool(device.index, pool)
    graph.reset()
    return broken
