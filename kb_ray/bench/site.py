"""What a machine can say of itself as a place for kernels: its GPU's name, and its versions of PyTorch and Triton.

Reads the driver's files and the metadata of packages: no torch, no CUDA, so it runs in any process of a node.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from kb_ray.records import Record

DRIVER_FILES = Path("/proc/driver/nvidia/gpus")


class Site(Record):
    """None stands for what is not known, or is not the same for all GPUs of the machine."""

    gpu: str | None = None
    torch: str | None = None
    triton: str | None = None


def site() -> Site:
    """This machine."""
    return Site(gpu=gpu_name(DRIVER_FILES), torch=installed_version("torch"), triton=installed_version("triton"))


def gpu_name(folder: Path) -> str | None:
    """The model named in `folder`/*/information, such as `NVIDIA H100 80GB HBM3`."""
    names = set()
    for path in folder.glob("*/information"):
        for line in path.read_text("utf-8", "replace").splitlines():
            label, _, value = line.partition(":")
            if label.strip() == "Model":
                names.add(value.strip())
    return names.pop() if len(names) == 1 else None


def installed_version(package: str) -> str | None:
    """The installed version of a distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
