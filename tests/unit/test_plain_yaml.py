"""Settings in YAML mean what they look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kb_ray.config import RunConfig
from kb_ray.config_sources import parse_command
from kb_ray.errors import ConfigError
from kb_ray.plain_yaml import load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:4", "1:4"), ("0:8", "0:8"), ("12:30:45", "12:30:45"), ("1:30.5", "1:30.5"),
        ("3", 3), ("-7", -7), ("1_000", 1000), ("0x10", 16), ("0", 0),
        ("1.5", 1.5), ("-1.", -1.0), (".5", 0.5), ("1e-4", 1e-4), ("2.5e3", 2500.0), (".inf", float("inf")),
        ("yes", True), ("null", None), ("2026-11-28x", "2026-11-28x"), ("'1:4'", "1:4"), ("[1, 1:2]", [1, "1:2"]),
    ],
)  # fmt: skip
def test_a_value_is_a_number_only_where_it_looks_like_one(text: str, value: Any) -> None:
    loaded = load_yaml(f"key: {text}")["key"]
    assert (loaded, type(loaded)) == (value, type(value))


@pytest.mark.parametrize(
    ("workers", "counts"),
    [("4", 4), ("1024", 1024), ("0:8", (0, 8)), ("1:4", (1, 4)), ("3:3", (3, 3))],
)
def test_workers_are_a_number_or_a_range_in_every_source(workers: str, counts: object, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"bench_workers: {workers}\n")
    for argv in (["--bench-workers", workers], [f"bench_workers={workers}"], ["--config", str(tmp_path / "run.yaml")]):
        config = parse_command(RunConfig, argv, prog="generate")
        assert config.worker_counts == counts
        assert RunConfig.model_validate(config.public()) == config
    assert RunConfig().worker_counts is None


@pytest.mark.parametrize(
    "workers", ["0", "-1", "0:0", "4:1", "1:", ":4", "1:2:3", "many", "1025", "0:1025", "²", "1.5"]
)
def test_other_numbers_of_workers_are_refused_in_one_line(workers: str) -> None:
    with pytest.raises(ConfigError, match=r"^--bench-workers: must be N or MIN:MAX") as refused:
        parse_command(RunConfig, [f"--bench-workers={workers}"], prog="generate")
    assert "\n" not in str(refused.value)
