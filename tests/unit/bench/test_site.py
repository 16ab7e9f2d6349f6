"""What a machine says of itself, and when several do not serve one run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kb_ray.bench.site import Site, compare, gpu_name, installed_version, site


@pytest.mark.parametrize(
    ("models", "name"),
    [
        ([], None),
        (["NVIDIA H100 80GB HBM3"], "NVIDIA H100 80GB HBM3"),
        (["NVIDIA H100 80GB HBM3"] * 8, "NVIDIA H100 80GB HBM3"),
        (["NVIDIA H100 80GB HBM3", "NVIDIA A2"], None),
    ],
)
def test_the_gpu_is_named_where_all_are_alike(tmp_path: Path, models: list[str], name: str | None) -> None:
    for index, model in enumerate(models):
        (tmp_path / f"0000:{index}").mkdir()
        (tmp_path / f"0000:{index}" / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 18\n")
    assert gpu_name(tmp_path) == name


def test_versions_are_those_installed_and_none_where_nothing_is() -> None:
    assert site().torch == installed_version("torch")
    assert installed_version("no-such-package") is None


H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def _site(host: str, **more: str) -> Site:
    return Site(
        **({"torch": "2.13.0", "triton": "3.7.1", "python": "3.11", "ray": "2.60.0", "gpu": H100} | more), host=host
    )


@pytest.mark.parametrize("name", ["torch", "triton", "python", "ray"])
def test_nodes_with_other_versions_are_named_in_one_line(name: str) -> None:
    [line], warns = compare([_site("a"), _site("b", **{name: "9.9"}), _site("c")])
    assert warns == []
    assert re.search(rf"differ in {name}: .* on a, c; 9\.9 on b; ", line), line
    assert "\n" not in line


def test_other_gpus_are_only_worth_knowing() -> None:
    stops, [line] = compare([_site("a"), _site("b", gpu=H200)])
    assert stops == []
    assert f"{H100} on a; {H200} on b" in line


def test_nodes_that_are_alike_or_silent_are_no_matter() -> None:
    assert compare([_site("a"), _site("b"), Site(host="c")]) == ([], [])
    assert compare([]) == ([], [])
