"""The first page's table of models, cell by cell, against the deployment files and the models' published fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments import app
from kb_ray.model.memory import _experts, parameters
from kb_ray.serve_file import FOLDER
from tests.unit.deployments.test_memory import BILLIONS, config_of, model_of
from tests.unit.test_docs import page, tables

README = Path(__file__).parents[3] / "README.md"
FILE = "`serve deploy deployments/...`"


def rows() -> dict[str, dict[str, str]]:
    """Rows of the table by the deployment file that each names."""
    (table,) = (table for table in tables(page(README)) if FILE in table[0])
    return {re.findall(r"`(\w+)\.yaml`", row[FILE])[0]: row for row in table}


def served_alone() -> set[str]:
    """Deployment files that serve a model and nothing beside it."""
    files = {path.stem: next(yaml.safe_load_all(path.read_text())) for path in FOLDER.glob("*.yaml")}
    paths = {name: [part["import_path"] for part in file.get("applications", ())] for name, file in files.items()}
    return {name for name, found in paths.items() if found == ["deployments.app:build"]}


def published(name: str) -> dict[str, Any]:
    return config_of(name) if name in BILLIONS else {}


def precision(name: str, model: app.ModelArgs) -> str:
    """Of the weights: as they are published, where that is no plain number format."""
    quantized = published(name).get("quantization_config")
    dtype = str(model.engine.get("dtype") or published(name)["torch_dtype"])
    return str(quantized["quant_method"]).upper() if quantized else {"bfloat16": "BF16"}[dtype]


every_model = pytest.mark.parametrize("name", sorted(rows()))


def test_the_table_has_every_model_that_a_file_of_its_own_serves() -> None:
    assert set(rows()) == served_alone()


@every_model
def test_a_row_names_the_model_that_its_file_serves(name: str) -> None:
    model, told = model_of(name), rows()[name]["Model"].casefold()
    assert model.model_id == told
    hub, last = "://" not in model.source and not model.source.startswith("."), model.source.split("/")[-1].casefold()
    # A folder has a name of our own; on the hub a repository of quantized weights ends in their kind.
    assert last.removesuffix("-fp8") == told if hub else told.startswith(last)
    assert last.endswith("-fp8") == (hub and precision(name, model) == "FP8")


@every_model
def test_gpus_precision_and_window_are_those_of_the_file(name: str) -> None:
    model, row = model_of(name), rows()[name]
    count = model.engine.get("tensor_parallel_size", 1) * model.engine.get("pipeline_parallel_size", 1)
    gpus = f"{count} x {model.accelerator}, {precision(name, model)}" if model.device == "gpu" else "none: a CPU"
    assert row["GPUs"] == gpus
    assert row["Window"] == f"{model.engine['max_model_len']:,}"
    assert ("with adapters" in row[FILE]) == (model.lora is not None)


@every_model
def test_parameters_and_kind_are_those_of_the_published_fields(name: str) -> None:
    row, config = rows()[name], published(name)
    told = re.fullmatch(r"([\d.]+[BM])(?: \(([\d.]+)B\))?", row["Parameters (active)"])
    assert told is not None
    experts = _experts(config)
    assert row["Kind"] in ({"mixture of experts", f"mixture of {experts} experts"} if experts else {"dense"})
    assert (told[2] is not None) == bool(experts)
    if not config:
        assert f"-{told[1]}-" in row["Model"], "nothing else here tells its size"
        return
    parts = parameters(config)
    assert float(told[1].removesuffix("B")) * 1e9 == pytest.approx(sum(parts.values()), rel=0.015)
    if experts:
        idle = parts["experts"] * (1 - config["num_experts_per_tok"] / experts)
        # Some publishers count embeddings among those that are active, others do not.
        assert float(told[2]) * 1e9 == pytest.approx(sum(parts.values()) - idle, rel=0.15)
