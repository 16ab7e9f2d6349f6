"""Deployment files as the pinned vLLM and ray.serve.llm read them, on a machine without a GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from deployments import app
from kb_ray.serve_file import FOLDER
from tests.unit.deployments.test_memory import BILLIONS, PUBLISHED, model_of

_READ = """
import json, sys
from deployments import app
from ray.serve._private.build_app import build_app
from ray.serve.llm import LLMConfig
from ray.serve.schema import ServeDeploySchema
from vllm.config import ParallelConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.reasoning import ReasoningParserManager

found = {}
for name, given in json.load(sys.stdin).items():
    ServeDeploySchema.model_validate(given["file"])
    LLMConfig(**given["config"])
    engine = given["engine"]
    model = EngineArgs(model=given["folder"], skip_tokenizer_init=True, **engine).create_model_config()
    parallel = ParallelConfig(
        tensor_parallel_size=engine["tensor_parallel_size"], distributed_executor_backend="mp",
        enable_expert_parallel=engine.get("enable_expert_parallel", False),
    )
    model.verify_with_parallel_config(parallel)
    parser = engine.get("reasoning_parser")
    found[name] = {
        "length": model.max_model_len, "quantization": model.quantization, "dtype": str(model.dtype),
        "parser": ReasoningParserManager.get_reasoning_parser(parser).__name__ if parser else None,
        "rope": (model.hf_config.rope_parameters or {}).get("rope_type"),
        "parts": {part.name: [part.ray_actor_options.get("label_selector"),
                              part._replica_config.placement_group_bundle_label_selector,
                              part._replica_config.placement_group_strategy]
                  for part in build_app(app.build(given["file"]["applications"][0]["args"]), name=name).deployments},
    }
print("\\n" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What vLLM makes of every deployment's engine arguments, over a folder with that model's published fields."""
    given = {}
    for name in BILLIONS:
        folder = tmp_path_factory.mktemp(name)
        shutil.copy(PUBLISHED / f"{name}.json", folder / "config.json")
        file = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
        config = app.serving_args(app.parse(file["applications"][0]["args"]))["llm_configs"][0]
        given[name] = {"folder": str(folder), "engine": model_of(name).engine, "file": file, "config": config}
    done = subprocess.run(
        [sys.executable, "-c", _READ], input=json.dumps(given), capture_output=True, text=True, timeout=500,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, object]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_vllm_takes_every_deployment(read: dict[str, dict[str, object]]) -> None:
    assert {name: found["length"] for name, found in read.items()} == {
        "glm45_air": 32768, "gpt_oss_120b": 16384, "qwen3_235b": 131072, "qwen25_coder_7b": 32768,
    }  # fmt: skip


def test_each_reasoning_model_has_its_own_parser(read: dict[str, dict[str, object]]) -> None:
    parsers = {name: str(found["parser"]) for name, found in read.items() if found["parser"]}
    assert set(parsers) == {"glm45_air", "gpt_oss_120b", "qwen3_235b"}
    assert len(set(parsers.values())) == 3


def test_the_long_context_is_reached_by_yarn_and_weights_stay_as_published(read: dict[str, dict[str, object]]) -> None:
    assert read["qwen3_235b"]["rope"] == "yarn"
    assert (read["qwen3_235b"]["quantization"], read["glm45_air"]["quantization"]) == ("fp8", None)
    assert "mxfp4" in str(read["gpt_oss_120b"]["quantization"])


def test_the_front_and_every_gpu_of_a_replica_stay_off_nodes_kept_for_others(
    read: dict[str, dict[str, object]],
) -> None:
    for name, found in read.items():
        parts = cast("dict[str, list[Any]]", found["parts"])
        # Serve builds an application where its file says that a part of it runs: the names must be those of the parts.
        file = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["applications"][0]
        (front,) = file["deployments"]
        assert parts.pop(front["name"])[0] == front["ray_actor_options"]["label_selector"] == app.NODES
        ((_, selectors, strategy),) = parts.values()
        assert selectors == [app.NODES] * model_of(name).engine["tensor_parallel_size"]
        assert strategy == "STRICT_PACK"
