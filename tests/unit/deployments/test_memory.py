"""Each deployment file asks for GPUs that its model fits into; tables of what is known of these models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments import app
from kb_ray.config import RunConfig
from kb_ray.model.memory import fit, parameters
from kb_ray.serve_file import FOLDER

ROOT = Path(__file__).parents[3]
PUBLISHED = Path(__file__).parent / "published"
H100_BYTES = int(79.6 * 2**30)
BILLIONS = {"glm45_air": 106, "gpt_oss_120b": 117, "qwen3_235b": 235, "qwen25_coder_7b": 7.6}
"""Parameters as their publishers say, without layers that only predict ahead."""


def config_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PUBLISHED / f"{name}.json").read_text())
    return found


def model_of(name: str) -> app.ModelArgs:
    args = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["applications"][0]["args"]
    return app.parse(args).models[0]


@pytest.mark.parametrize("name", BILLIONS)
def test_parameters_are_as_many_as_published(name: str) -> None:
    assert sum(parameters(config_of(name)).values()) == pytest.approx(BILLIONS[name] * 1e9, rel=0.015)


@pytest.mark.parametrize("name", BILLIONS)
def test_a_deployment_fits_the_gpus_it_asks_for_with_room_for_several_answers(name: str) -> None:
    found = fit(config_of(name), model_of(name).engine, H100_BYTES)
    assert found.problems == ()
    assert found.sequences >= 4, found


def test_gpus_are_those_of_the_first_documents_table() -> None:
    wanted = {"glm45_air": 4, "gpt_oss_120b": 2, "qwen3_235b": 8, "qwen25_coder_7b": 1}
    assert {name: model_of(name).engine["tensor_parallel_size"] for name in wanted} == wanted
    lengths = {"glm45_air": 32768, "gpt_oss_120b": 16384, "qwen3_235b": 131072}
    assert {name: model_of(name).engine["max_model_len"] for name in lengths} == lengths
    assert all(model_of(name).accelerator == "H100" for name in wanted)


def test_what_does_not_fit_is_said() -> None:
    glm = config_of("glm45_air")
    assert "more GPUs" in fit(glm, {"tensor_parallel_size": 2, "max_model_len": 32768}, H100_BYTES).problems[0]
    assert "attention heads" in fit(glm, {"tensor_parallel_size": 5}, H100_BYTES).problems[0]
    cut = {"tensor_parallel_size": 8, "max_model_len": 32768}
    assert "enable_expert_parallel" in fit(config_of("qwen3_235b"), cut, H100_BYTES).problems[0]


@pytest.mark.parametrize("name", [*BILLIONS, "glm45_air_and_bench", "smollm2_cpu"])
def test_the_longest_answer_may_be_finished_at_the_pace_that_the_file_states(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    ((said, pace),) = re.findall(r"graceful_shutdown_timeout_s: \d+  # (\d+) tokens at (\d+) a second$", text, re.M)
    model = model_of(name)
    assert model.engine["max_model_len"] == int(said)
    leaving = model.deployment["graceful_shutdown_timeout_s"]
    assert int(said) / int(pace) <= leaving, "a replica that leaves"
    assert model.deployment["max_ongoing_requests"] == model.engine["max_num_seqs"], "what it let in waits for nothing"
    # Of a model on the hub: a folder would have to be here.
    elsewhere = model.model_copy(update={"source": "org/model", "source_env": None})
    found = app.serving_args(app.AppArgs(models=[elsewhere]))
    assert leaving <= found["ingress_deployment_config"]["graceful_shutdown_timeout_s"], "a front that leaves"
    assert leaving <= found["ingress_cls_config"]["ingress_extra_kwargs"]["answer_limit_s"]


def test_as_many_requests_as_a_replica_is_to_have_get_in() -> None:
    for name in BILLIONS:
        deployment = model_of(name).deployment
        assert deployment["max_ongoing_requests"] >= deployment["autoscaling_config"]["target_ongoing_requests"]


def test_no_run_waits_longer_for_an_answer_than_the_front() -> None:
    (most,) = (limit.le for limit in RunConfig.model_fields["answer_timeout"].metadata if hasattr(limit, "le"))
    assert most <= app.ANSWER_LIMIT_S


@pytest.mark.parametrize("run", ["jobs/generate.yaml", "deployments/rayjob.yaml"])
def test_a_run_on_a_cluster_waits_as_long_as_its_longest_answer_takes(run: str) -> None:
    text = (ROOT / run).read_text()
    (tokens,), (seconds,) = (re.findall(rf"{name}:? (\d+)", text) for name in ("max.tokens", "answer.timeout"))
    (pace,) = re.findall(r"tokens at (\d+) a second", (FOLDER / "glm45_air.yaml").read_text())
    assert int(tokens) / int(pace) < int(seconds) <= model_of("glm45_air").deployment["graceful_shutdown_timeout_s"]
