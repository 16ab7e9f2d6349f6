"""What a machine can say of itself as a place for kernels, and whether several say the same.

Reads the driver's files and the metadata of packages: no torch, no CUDA, so it runs in any process of a node.
Does not know how a machine is asked, nor what follows from an answer.
"""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from kb_ray.records import Record

DRIVER_FILES = Path("/proc/driver/nvidia/gpus")
_MUST_AGREE = ("ray", "python", "torch", "triton")
"""What decides whether a kernel compiles, and to what."""


class Site(Record):
    """None stands for what is not known, or is not the same for all GPUs of the machine."""

    gpu: str | None = None
    torch: str | None = None
    triton: str | None = None
    python: str | None = None
    """Major and minor version: what decides which packages there are."""
    ray: str | None = None
    host: str | None = None
    node: str | None = None
    """Ray's id of the node, where Ray is connected."""


def site() -> Site:
    """This machine."""
    return Site(
        gpu=gpu_name(DRIVER_FILES),
        torch=installed_version("torch"),
        triton=installed_version("triton"),
        python=".".join(platform.python_version_tuple()[:2]),
        ray=installed_version("ray"),
        host=socket.gethostname(),
        node=_ray_node(),
    )


def compare(sites: Sequence[Site]) -> tuple[list[str], list[str]]:
    """(what forbids that these machines serve one run, what is only worth knowing), a line each."""
    stops = [
        f"bench nodes differ in {name}: {told}; install the same on all, or their verdicts do not compare"
        for name in _MUST_AGREE
        if (told := _differing(sites, name))
    ]
    models = _differing(sites, "gpu")
    warns = [f"bench nodes have different GPUs: {models}; times of one do not compare with the other's, and each "
             "verdict's env says which it was"] if models else []  # fmt: skip
    return stops, warns


def _differing(sites: Sequence[Site], name: str) -> str:
    """Each value with the machines that have it; empty where all agree. What is not known disagrees with nothing."""
    hosts: dict[str, dict[str, None]] = {}
    for one in sites:
        if (value := getattr(one, name)) is not None:
            hosts.setdefault(value, {})[_name(one)] = None
    if len(hosts) < 2:
        return ""
    return "; ".join(f"{value} on {', '.join(names)}" for value, names in sorted(hosts.items()))


def _name(one: Site) -> str:
    return f"{one.host or 'a node'} (node {one.node[-8:]})" if one.node else one.host or "a node"


def _ray_node() -> str | None:
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().get_node_id())


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
