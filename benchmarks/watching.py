"""What can be seen of processes and of a GPU from outside: resident memory, used GPU memory."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def gpu_bytes() -> int:
    """Used memory of the first visible GPU."""
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]) << 20


def cpu_seconds() -> float:
    """Seconds that all cores together have worked since the machine's start."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _waiting, *rest = (int(word) for word in stat.readline().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def seconds_until(condition: Callable[[], bool], at_most: float = 30.0) -> float:
    started = time.perf_counter()
    while not condition() and time.perf_counter() - started < at_most:
        time.sleep(0.05)
    return time.perf_counter() - started


def resident(pids: dict[str, int]) -> dict[str, float]:
    """MiB resident, by role; `self` is this process."""
    found = {role: _resident_kib(pid) / 1024 for role, pid in pids.items()}
    return found | {
        "self": _resident_kib("self") / 1024,
        "self_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _resident_kib(pid: int | str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
