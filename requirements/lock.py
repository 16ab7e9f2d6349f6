"""`python -m requirements.lock`: writes the pins of the container images, requirements/images/*.txt, anew.

`uv` (a tool on the path, not a dependency) resolves pyproject.toml's extras for the images' Python; pip's dry run
then says which wheel each pin means and its hash. Nothing is installed, and of most wheels only the metadata is
read. NVIDIA's libraries are left out: torch's own metadata pins them, and images/nvidia.txt repeats it. Does not
know how images are built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements" / "images"
PYTHON = "3.12"
EXTRAS: dict[str, tuple[str, ...]] = {"serve": ("serve",), "bench": ("bench",), "train": ("train", "bench")}
"""Extras of pyproject.toml that each image has."""
TORCH = "2.13.0"
GLIBC = 36
"""Minor version of the C library in the images' base, Debian 12."""
LEFT_OUT = (
    *("cuda-toolkit", "cuda-bindings", "nvidia-cudnn-cu13", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13"),
    *("nvidia-nvshmem-cu13", "nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-nvvm"),
)
"""Libraries of the CUDA that torch was built with. They come with torch, not from a pin of ours."""
HEADER = """\
# Pins of the {image} image, Python {python} on x86-64. Made by `python -m requirements.lock`; not edited by hand.
# NVIDIA's libraries are not here: nvidia.txt.
"""


@dataclass(frozen=True)
class Pin:
    """One package as pip would install it. `requires`: requirement lines of its metadata."""

    name: str
    version: str
    sha256: str
    requires: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


def main() -> int:
    """Write every image's file."""
    for image in EXTRAS:
        pins = chosen(resolved(image))
        lines = "".join(f"{pin.line}\n" for pin in sorted(pins, key=lambda pin: pin.name))
        (FOLDER / f"{image}.txt").write_text(HEADER.format(image=image, python=PYTHON) + lines)
        print(f"{image}: {len(pins)} packages")
    return 0


def resolved(image: str) -> list[str]:
    """`name==version` of everything that an image's extras need, by uv."""
    with tempfile.TemporaryDirectory() as folder:
        override, constraint = Path(folder, "override.txt"), Path(folder, "constraint.txt")
        override.write_text("".join(f'{name} ; sys_platform == "never"\n' for name in LEFT_OUT))
        constraint.write_text(f"torch=={TORCH}\n")
        command = [
            *("uv", "pip", "compile", "pyproject.toml", "--no-config", "--no-build", "--no-header", "--no-annotate"),
            *("--quiet", "--python-version", PYTHON, "--python-platform", f"x86_64-manylinux_2_{GLIBC}"),
            *("--override", str(override), "--constraint", str(constraint)),
            *(word for extra in EXTRAS[image] for word in ("--extra", extra)),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "==" in line]


def chosen(pins: list[str]) -> list[Pin]:
    """What pip's dry run makes of pins, for the images' Python and platform. Raises where one cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        report, wanted = Path(folder, "report.json"), Path(folder, "pins.txt")
        wanted.write_text("\n".join(pins))
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"),
            # Metadata by range requests: the wheels would be gigabytes.
            *("--use-feature=fast-deps", "--only-binary", ":all:", "--python-version", PYTHON),
            *(word for platform in _platforms() for word in ("--platform", platform)),
            *("--target", folder, "--report", str(report), "-r", str(wanted)),
        ]
        # A machine's own settings may name builds for another device, such as torch for CPUs alone.
        environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_CONSTRAINT": ""}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"pip cannot have these pins: {done.stderr.strip()}")
        items = json.loads(report.read_text())["install"]
    return [
        Pin(
            name=item["metadata"]["name"].lower().replace("_", "-").replace(".", "-"),
            version=item["metadata"]["version"],
            sha256=item["download_info"]["archive_info"]["hashes"]["sha256"],
            requires=tuple(item["metadata"].get("requires_dist", ())),
        )
        for item in items
    ]


def _platforms() -> list[str]:
    old = ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    return [*(f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 4, -1)), *old]


if __name__ == "__main__":
    sys.exit(main())
