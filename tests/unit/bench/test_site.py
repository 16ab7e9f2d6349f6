"""What a machine says of its GPUs, from the driver's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kb_ray.bench.site import gpu_name, installed_version, site


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
