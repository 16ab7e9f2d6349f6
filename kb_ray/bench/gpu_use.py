"""How much memory of each GPU of this machine is in use, by whomever.

Asks the driver's management library, so that no CUDA context comes to be in this process. Sees what this
container may see. Does not know whose memory it is.
"""

from __future__ import annotations

import ctypes

_UUID_BYTES = 96


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def memory_in_use() -> dict[str, int]:
    """Bytes by the GPU's UUID; empty where no driver answers."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    if library.nvmlInit_v2() != 0:
        return {}
    try:
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return {}
        return dict(found for index in range(count.value) if (found := _used(library, index)) is not None)
    finally:
        library.nvmlShutdown()


def _used(library: ctypes.CDLL, index: int) -> tuple[str, int] | None:
    handle, uuid, memory = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES), _Memory()
    code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
    code = code or library.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(_UUID_BYTES))
    code = code or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return None if code != 0 else (uuid.value.decode(), int(memory.used))
