"""What the machine under a verdict is: GPU, driver, versions, and clocks at this moment (through NVML).

Reads only; sets no clock. Where NVML is missing the clock fields stay empty, memory in use is unknown and no
fault is reported. What a fault means is for `health` to say.
"""

from __future__ import annotations

import ctypes
import platform
import socket
import threading
from collections.abc import Callable
from typing import Any

import torch
import triton

from kb_ray.bench.child.limits import Limits
from kb_ray.records import Environment

_SM, _MEM = 1, 2
_XID_EVENTS = 8
_TIMED_OUT = 10
_WAIT_MS = 5000
_MOST_PROCESSES = 1024
_TRIED_BYTES, _TRIALS = 256 << 20, 5
_UNKNOWN = (1 << 64) - 1
"""What the driver says of a process's memory where it does not tell."""
_THROTTLE = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Event(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """One GPU's sensors. Every reading is None where the driver does not give it."""

    def __init__(self, uuid: str) -> None:
        self._lib: Any = None
        try:
            lib = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        handle = ctypes.c_void_p()
        found = lib.nvmlInit_v2() == 0 and (
            lib.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)) == 0
        )
        if found:
            self._lib, self._handle = lib, handle

    def _number(self, name: str, kind: Any, *before: int) -> int | None:
        if self._lib is None:
            return None
        value = kind()
        arguments = [ctypes.c_uint(b) for b in before]
        code = getattr(self._lib, name)(self._handle, *arguments, ctypes.byref(value))
        return int(value.value) if code == 0 else None

    def clocks(self) -> tuple[int | None, int | None]:
        """(SM, memory) clock in MHz."""
        read = "nvmlDeviceGetClockInfo"
        return self._number(read, ctypes.c_uint, _SM), self._number(read, ctypes.c_uint, _MEM)

    def power_w(self) -> float | None:
        milliwatts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        return None if milliwatts is None else milliwatts / 1000

    def throttle(self) -> tuple[str, ...]:
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong) or 0
        return tuple(name for bit, name in _THROTTLE.items() if bits & bit)

    def used_bytes(self) -> int | None:
        """Memory of the GPU in use, by whomever."""
        memory = _Memory()
        if self._lib is None or self._lib.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)) != 0:
            return None
        return int(memory.used)

    def held_bytes(self) -> int | None:
        """Memory of the GPU that the driver lists for living processes, whosever; None where it does not tell."""
        processes, count = (_Process * _MOST_PROCESSES)(), ctypes.c_uint(_MOST_PROCESSES)
        if self._lib is None or (
            self._lib.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), processes) != 0
        ):
            return None
        held = [process.used for process in processes[: count.value]]
        return None if _UNKNOWN in held else sum(held)

    def watch_xids(self, told: Callable[[int], None]) -> bool:
        """Call `told` with each Xid that the driver reports from now on; False where it reports none to us."""
        events = ctypes.c_void_p()
        if self._lib is None or self._lib.nvmlEventSetCreate(ctypes.byref(events)) != 0:
            return False
        if self._lib.nvmlDeviceRegisterEvents(self._handle, ctypes.c_ulonglong(_XID_EVENTS), events) != 0:
            self._lib.nvmlEventSetFree(events)
            return False

        def wait() -> None:
            event = _Event()
            code = 0
            # Any other code is an event set that has died, with the GPU or the driver: the canary will tell.
            while code in (0, _TIMED_OUT):
                code = self._lib.nvmlEventSetWait_v2(events, ctypes.byref(event), ctypes.c_uint(_WAIT_MS))
                if code == 0 and event.type == _XID_EVENTS:
                    told(int(event.data))

        threading.Thread(target=wait, name="xid", daemon=True).start()
        return True

    def bytes_per_s(self) -> float | None:
        """Memory bandwidth at its highest clock; two transfers a cycle."""
        bits = self._number("nvmlDeviceGetMemoryBusWidth", ctypes.c_uint)
        mhz = self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _MEM)
        return 2e6 * mhz * bits / 8 if bits and mhz else None

    def max_sm_hz(self) -> float:
        return 1e6 * (self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM) or 0)

    def driver(self) -> str | None:
        if self._lib is None:
            return None
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self._lib.nvmlSystemGetDriverVersion(text, 96) == 0 else None


class Machine:
    """The judge's device, described once; `now()` adds the clocks of the moment."""

    def __init__(self, cuda: bool) -> None:
        self._nvml: Nvml | None = None
        self.limits = Limits()
        self._fixed = Environment(
            device="cuda" if cuda else "cpu",
            torch=torch.__version__,
            triton=triton.__version__,
            python=platform.python_version(),
            host=socket.gethostname(),
        )
        if cuda:
            properties = torch.cuda.get_device_properties(0)
            self._nvml = Nvml(str(properties.uuid))
            self._fixed = self._fixed.model_copy(update={"gpu": properties.name, "driver": self._nvml.driver()})
            self.limits = Limits(
                self._nvml.bytes_per_s(), properties.L2_cache_size, properties.multi_processor_count,
                self._nvml.max_sm_hz(),
            )  # fmt: skip

    def used_bytes(self) -> int | None:
        """Memory of the GPU in use, by whomever; None on a CPU and where nobody says."""
        return None if self._nvml is None else self._nvml.used_bytes()

    def held_bytes(self) -> int | None:
        """Memory of the GPU that living processes hold; None on a CPU and where nobody says whose it is."""
        return None if self._nvml is None else self._nvml.held_bytes()

    def tells_whose(self) -> bool:
        """Whether what this process takes shows in `held_bytes`: many containers list no processes, or numbers of
        another namespace, by which nobody could be found."""
        # What ends meanwhile gives memory back: one trial alone may not show it.
        return self._nvml is not None and any(_shows(self._nvml) for _ in range(_TRIALS))

    def watch_xids(self, told: Callable[[int], None]) -> bool:
        """Call `told` with each Xid from now on; False where none will ever come."""
        return self._nvml is not None and self._nvml.watch_xids(told)

    def describe(self) -> Environment:
        return self._fixed

    def now(self) -> Environment:
        if self._nvml is None:
            return self._fixed
        sm, memory = self._nvml.clocks()
        return self._fixed.model_copy(
            update={
                "sm_clock_mhz": sm,
                "memory_clock_mhz": memory,
                "power_w": self._nvml.power_w(),
                "throttle": self._nvml.throttle(),
            }
        )


def _shows(nvml: Nvml) -> bool:
    """Whether memory that is taken here is listed as held by somebody."""
    torch.cuda.empty_cache()
    before = nvml.held_bytes()
    try:
        block = torch.empty(_TRIED_BYTES, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return False
    after = nvml.held_bytes()
    del block
    torch.cuda.empty_cache()
    return before is not None and after is not None and after - before >= _TRIED_BYTES
