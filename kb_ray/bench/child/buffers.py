"""Memory shared by a judge and one sandboxed process: tensors without copies, ending at a wall.

On a CPU the tensors of one block share a memfd of fixed size, each mapped so that it ends where a page
without access begins: an unmasked read or write past it is a SIGSEGV in the process that did it. On a GPU
the tensors of one block lie in one cudaMalloc allocation, apart from each other by guard bands, shared by IPC handle.
Knows layouts and mappings only; what a block holds and who may see it is decided by the judge.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kb_ray.bench.child.strides import extent, gaps, shaped
from kb_ray.bench.child.tree import dtype_of
from kb_ray.bench.child.values import TensorRef

PAGE = mmap.PAGESIZE
GUARD_BYTES = 4096
ALIGN = 256
POISON = 0xA5
MAX_BYTES = 64 << 30
"""Of one block: shapes are told by strangers, and a broadcast view can claim any size."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_size_t,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PROT_NONE, _PROT_RW, _MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANON = 0, 3, 1, 2, 0x10, 0x20
_MAP_FAILED = ctypes.c_void_p(-1).value


def nbytes(ref: TensorRef) -> int:
    """Bytes of memory from the first element to the last of such a tensor; WireError where its dtype is none."""
    return int(extent(ref.shape, ref.strides) * dtype_of(ref.dtype).itemsize)


def seen(memory: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """`nbytes(ref)` bytes of memory, given as uint8, as the tensor that `ref` describes."""
    return shaped(memory.view(dtype_of(ref.dtype)), ref.shape, ref.strides)


def gaps_intact(memory: torch.Tensor, ref: TensorRef) -> bool:
    """Whether what lies between the elements of a tensor with gaps still holds the poison."""
    between = gaps(ref.shape, ref.strides)
    if between is None:
        return True
    elements = memory.view(-1, dtype_of(ref.dtype).itemsize)
    return bool((elements[between.to(memory.device)] == POISON).all())


def check_size(refs: Sequence[TensorRef]) -> None:
    """MemoryError where the tensors are over the limit, or would be with each element in memory of its own."""
    size = sum(max(nbytes(ref), math.prod(ref.shape) * dtype_of(ref.dtype).itemsize) for ref in refs)
    if size > MAX_BYTES:
        raise MemoryError(f"tensors of {size} bytes are over the limit of {MAX_BYTES}")


@dataclass
class Mapping:
    """Part of a memfd between two pages without access. `data` is the address of the first byte."""

    base: int
    span: int
    data: int
    size: int

    def memory(self) -> torch.Tensor:
        """Its bytes; at least one."""
        return torch.frombuffer((ctypes.c_char * self.size).from_address(self.data), dtype=torch.uint8)

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        return seen(self.memory(), ref) if self.size else torch.empty(ref.shape, dtype=dtype_of(ref.dtype))

    def close(self) -> None:
        _libc.munmap(self.base, self.span)


def make_memfd(size: int) -> int:
    """A memfd of `size` bytes that nobody can resize: a file cut short is a SIGBUS in whoever has it mapped."""
    fd = os.memfd_create("kb_block", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def map_memfd(fd: int, size: int, offset: int = 0) -> Mapping:
    """Map whole pages of a memfd from `offset` on, so that the last of `size` bytes is before a page without access.

    The data starts at (whole pages - size), rounded down to the element size by the caller's layout:
    sizes are multiples of the element size, so elements stay aligned.
    """
    body = _pages(size)
    span = body + 2 * PAGE
    base = _libc.mmap(None, span, _PROT_NONE, _MAP_PRIVATE | _MAP_ANON, -1, 0)
    if base == _MAP_FAILED:
        raise MemoryError(f"cannot reserve {span} bytes of address space")
    if _libc.mmap(base + PAGE, body, _PROT_RW, _MAP_SHARED | _MAP_FIXED, fd, offset) == _MAP_FAILED:
        _libc.munmap(base, span)
        raise MemoryError(f"cannot map {body} bytes of shared memory")
    return Mapping(base, span, base + PAGE + body - size, size)


def _pages(size: int) -> int:
    return max(PAGE, (size + PAGE - 1) // PAGE * PAGE)


def _map_all(fd: int, refs: Sequence[TensorRef]) -> list[Mapping]:
    """Each tensor's pages, one after the other in the memfd, mapped apart from each other."""
    maps, offset = [], 0
    for ref in refs:
        maps.append(map_memfd(fd, nbytes(ref), offset))
        offset += _pages(nbytes(ref))
    return maps


def layout(refs: Sequence[TensorRef]) -> tuple[list[int], int]:
    """Offsets of tensors in one block, each between guard bands and aligned, and the block's size."""
    offsets, at = [], GUARD_BYTES
    for ref in refs:
        offsets.append(at)
        end = at + nbytes(ref)
        at = (end + ALIGN - 1) // ALIGN * ALIGN + GUARD_BYTES
    return offsets, at


class HostBlock:
    """Judge's side of a block on a CPU: one memfd, one mapping per tensor."""

    def __init__(self, refs: Sequence[TensorRef]) -> None:
        self.refs = tuple(refs)
        check_size(self.refs)
        size = sum(_pages(nbytes(ref)) for ref in self.refs)
        self.fds = [make_memfd(size)] if self.refs else []
        self._maps = _map_all(self.fds[0], self.refs) if self.refs else []
        self.tensors = [m.tensor(ref) for m, ref in zip(self._maps, self.refs, strict=True)]
        self.handle = b""
        self.poison()

    def poison(self) -> None:
        for m in self._maps:
            ctypes.memset(m.base + PAGE, POISON, m.span - 2 * PAGE)

    def guards_intact(self) -> bool:
        """Whether the slack before and within each tensor still holds the poison (what lies after is a wall)."""
        for m, ref in zip(self._maps, self.refs, strict=True):
            slack = m.data - (m.base + PAGE)
            if slack and ctypes.string_at(m.base + PAGE, slack) != bytes([POISON]) * slack:
                return False
            if m.size and not gaps_intact(m.memory(), ref):
                return False
        return True

    def close(self) -> None:
        self.tensors = []
        for m in self._maps:
            m.close()
        for fd in self.fds:
            os.close(fd)
        self._maps, self.fds = [], []


def attach_host(refs: Sequence[TensorRef], fds: Sequence[int]) -> tuple[list[torch.Tensor], list[Any]]:
    """Child's side: tensors over the judge's memfd, and what must be kept alive or closed with them."""
    maps = _map_all(fds[0], refs) if refs else []
    for fd in fds:
        os.close(fd)
    return [m.tensor(ref) for m, ref in zip(maps, refs, strict=True)], list(maps)
