"""What every deployment file of a model says beside its GPUs, and nothing else would miss."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from kb_ray.serve_file import find, names, read

ROUTER = "deployments.prefix_router.PrefixRouter"


def models() -> dict[str, dict[str, Any]]:
    """File and model -> its arguments."""
    applications = {name: read(find(name))["applications"] for name in names()}
    return {
        f"{name}:{model['model_id']}": model
        for name, found in applications.items()
        for application in found
        for model in application["args"].get("models", ())
    }


MODELS = models()
ON_GPUS = {name: model for name, model in MODELS.items() if model.get("device") != "cpu"}


def test_none_is_passed_over() -> None:
    files = {name.split(":")[0] for name in MODELS}
    on_gpus = {"glm45_air", "glm45_air_and_bench", "gpt_oss_120b", "qwen25_coder_7b", "qwen3_235b"}
    assert files == {*on_gpus, "smollm2_cpu"}
    assert {name.split(":")[0] for name in ON_GPUS} == on_gpus


@pytest.mark.parametrize("name", MODELS)
def test_a_request_goes_where_its_beginning_is_cached(name: str) -> None:
    model = MODELS[name]
    (key, named), *others = model["deployment"]["request_router_config"].items()
    assert (key, named, others) == ("request_router_class", ROUTER, [])
    module, _, router = named.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), router), type)
    # vLLM's own value on a CPU too.
    assert model["engine"].get("enable_prefix_caching", name not in ON_GPUS) is True


@pytest.mark.parametrize("name", MODELS)
def test_how_many_replicas_there_are_is_said_and_each_lets_in_what_vllm_takes_up(name: str) -> None:
    model = MODELS[name]
    scaling = model["deployment"].get("autoscaling_config")
    assert (scaling is None) == ("replicas" in model), "a number, or bounds"
    if scaling is not None:
        assert 1 <= scaling["min_replicas"] <= scaling["max_replicas"]
    assert model["deployment"]["max_ongoing_requests"] == model["engine"]["max_num_seqs"]


@pytest.mark.parametrize("name", MODELS)
def test_a_replica_that_is_slow_is_not_taken_for_a_sick_one(name: str) -> None:
    from ray.serve._private import constants

    deployment = MODELS[name]["deployment"]
    assert deployment["health_check_timeout_s"] > constants.DEFAULT_HEALTH_CHECK_TIMEOUT_S
    if name in ON_GPUS:
        assert deployment["health_check_period_s"] > constants.DEFAULT_HEALTH_CHECK_PERIOD_S
