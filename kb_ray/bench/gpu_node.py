"""Which GPU a number or UUID means, and the file under /dev by which it is reached.

Asks the driver's management library, so that no CUDA context comes to be in this process. Does not know who uses it.

Why it matters: the driver looks at every GPU whose file a process may open when it makes a CUDA context, whatever
CUDA_VISIBLE_DEVICES says, and every context of a machine waits for the same lock meanwhile.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

_UUID_BYTES = 96


@dataclass(frozen=True)
class GpuNode:
    """`name`: for CUDA_VISIBLE_DEVICES, the same however many GPUs can be seen. `path`: such as /dev/nvidia3."""

    name: str
    path: str


def gpu_node(gpu: str) -> GpuNode | None:
    """The GPU of this number, in the order of nvidia-smi, or of this UUID; None where that cannot be told.

    Parts of a GPU (MIG) are reached by further files, so they are left alone.
    """
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if library.nvmlInit_v2() != 0:
        return None
    try:
        return _found(library, gpu)
    finally:
        library.nvmlShutdown()


def _found(library: ctypes.CDLL, gpu: str) -> GpuNode | None:
    handle, minor, uuid = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(_UUID_BYTES)
    if gpu.isdecimal():
        code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(gpu)), ctypes.byref(handle))
    elif gpu.startswith("GPU-"):
        code = library.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle))
    else:
        return None
    code = code or library.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor))
    code = code or library.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(_UUID_BYTES))
    if code != 0 or _is_divided(library, handle):
        return None
    path = f"/dev/nvidia{minor.value}"
    return GpuNode(uuid.value.decode(), path) if os.path.exists(path) else None


def _is_divided(library: ctypes.CDLL, handle: ctypes.c_void_p) -> bool:
    """Whether MIG is on; where the driver does not know the question it is not."""
    now, later = ctypes.c_uint(), ctypes.c_uint()
    code = library.nvmlDeviceGetMigMode(handle, ctypes.byref(now), ctypes.byref(later))
    return bool(code == 0 and now.value)
