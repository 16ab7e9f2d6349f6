"""CUDA blocks shared between processes by raw IPC handles, through the CUDA runtime that torch loaded.

torch's own sharing counts references across processes and leaks when a consumer is killed; here the
judge owns each allocation and frees it, whatever became of the other side. Each block is an allocation
of its own, a multiple of 2 MiB, since a handle maps the whole underlying allocation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from kb_ray.bench.child.buffers import POISON, check_size, gaps_intact, layout, nbytes, seen
from kb_ray.bench.child.tree import dtype_of
from kb_ray.bench.child.values import TensorRef

HANDLE_BYTES = 64
_GRANULE = 2 << 20
_IPC_LAZY_PEER = 1
_PERSISTING_L2 = 6
_OUT_OF_MEMORY = 2


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class _Span:
    """Memory at an address, as torch's `__cuda_array_interface__` wants it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _runtime() -> ctypes.CDLL:
    """The CUDA runtime library that torch already loaded into this process."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip().rpartition(" ")[2]
            if "libcudart" in path:
                return ctypes.CDLL(path)
    raise RuntimeError("torch has no CUDA runtime loaded in this process")


_cached: list[ctypes.CDLL] = []


def runtime() -> ctypes.CDLL:
    if not _cached:
        _cached.append(_runtime())
    return _cached[0]


def _check(code: int, what: str) -> None:
    if code == _OUT_OF_MEMORY:
        raise torch.cuda.OutOfMemoryError(f"{what}: out of GPU memory")
    if code != 0:
        raise RuntimeError(f"{what} failed with CUDA error {code}")


def _tensor(base: int, offset: int, ref: TensorRef) -> torch.Tensor:
    size = nbytes(ref)
    if size == 0:
        return torch.empty(ref.shape, dtype=dtype_of(ref.dtype), device="cuda")
    return seen(torch.as_tensor(_Span(base + offset, size), device="cuda"), ref)


def _allocated(size: int) -> int:
    """Address of a new allocation. torch keeps what it has freed: that is given back before this fails."""
    pointer = ctypes.c_void_p()
    code = runtime().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    if code == _OUT_OF_MEMORY:
        runtime().cudaGetLastError()
        torch.cuda.empty_cache()
        code = runtime().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    if code == _OUT_OF_MEMORY:
        # Left standing it would be raised by the next, innocent call.
        runtime().cudaGetLastError()
    _check(code, "cudaMalloc")
    return int(pointer.value or 0)


class CudaBlock:
    """Judge's side: one cudaMalloc allocation that holds the tensors between guard bands."""

    def __init__(self, refs: Sequence[TensorRef]) -> None:
        self.refs = tuple(refs)
        check_size(self.refs)
        self.fds: list[int] = []
        self.offsets, size = layout(self.refs)
        self.size = (size + _GRANULE - 1) // _GRANULE * _GRANULE
        self.base = _allocated(self.size)
        pointer = ctypes.c_void_p(self.base)
        handle = _Handle()
        _check(runtime().cudaIpcGetMemHandle(ctypes.byref(handle), pointer), "cudaIpcGetMemHandle")
        self.handle = bytes(ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES))
        self._whole: torch.Tensor | None = torch.as_tensor(_Span(self.base, self.size), device="cuda")
        self._whole.fill_(POISON)
        # Whoever gets the handle does not wait for this process's stream.
        torch.cuda.current_stream().synchronize()
        self.tensors = [_tensor(self.base, o, r) for o, r in zip(self.offsets, self.refs, strict=True)]

    def guards_intact(self) -> bool:
        """Whether every byte outside the tensors' elements still holds the poison."""
        assert self._whole is not None
        at = 0
        for offset, ref in zip(self.offsets, self.refs, strict=True):
            if not bool((self._whole[at:offset] == POISON).all()):
                return False
            at = offset + nbytes(ref)
            if not gaps_intact(self._whole[offset:at], ref):
                return False
        return bool((self._whole[at : self.size] == POISON).all())

    def close(self) -> None:
        self.tensors, self._whole = [], None
        torch.cuda.synchronize()
        _check(runtime().cudaFree(ctypes.c_void_p(self.base)), "cudaFree")


class _Opened:
    def __init__(self, base: int) -> None:
        self.base = base

    def close(self) -> None:
        torch.cuda.synchronize()
        runtime().cudaIpcCloseMemHandle(ctypes.c_void_p(self.base))


def attach_cuda(refs: Sequence[TensorRef], handle: bytes) -> tuple[list[torch.Tensor], list[Any]]:
    """Child's side: tensors over the judge's allocation."""
    torch.cuda.init()
    torch.cuda.current_stream()
    pointer, opened = ctypes.c_void_p(), _Handle()
    ctypes.memmove(ctypes.byref(opened), handle, HANDLE_BYTES)
    # The handle goes by value; ctypes passes a 64-byte structure on the stack as the C ABI wants.
    code = runtime().cudaIpcOpenMemHandle(ctypes.byref(pointer), opened, ctypes.c_uint(_IPC_LAZY_PEER))
    _check(code, "cudaIpcOpenMemHandle")
    base = int(pointer.value or 0)
    offsets, _ = layout(refs)
    return [_tensor(base, o, r) for o, r in zip(offsets, refs, strict=True)], [_Opened(base)]


def reset_persisting_l2() -> None:
    """Nothing stays in the L2 cache beyond its turn: a part set aside there would survive being flushed."""
    runtime().cudaDeviceSetLimit(_PERSISTING_L2, ctypes.c_size_t(0))
    runtime().cudaCtxResetPersistingL2Cache()


def persisting_l2() -> int:
    """Bytes of the L2 cache that this process has set aside for what is to survive a flush."""
    size = ctypes.c_size_t()
    code = runtime().cudaDeviceGetLimit(ctypes.byref(size), _PERSISTING_L2)
    return int(size.value) if code == 0 else 0
