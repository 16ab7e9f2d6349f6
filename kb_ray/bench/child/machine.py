"""What the machine under a verdict is: GPU, driver, versions, and clocks at this moment (through NVML).

Reads only; sets no clock. Where NVML is missing the clock fields stay empty.
"""

from __future__ import annotations

import ctypes
import platform
import socket
from typing import Any

import torch
import triton

from kb_ray.records import Environment

_SM, _MEM = 1, 2
_THROTTLE = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}


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

    def driver(self) -> str | None:
        if self._lib is None:
            return None
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self._lib.nvmlSystemGetDriverVersion(text, 96) == 0 else None


class Machine:
    """The judge's device, described once; `now()` adds the clocks of the moment."""

    def __init__(self, cuda: bool) -> None:
        self._nvml: Nvml | None = None
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
