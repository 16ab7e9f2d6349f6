"""What a deployment file means to ray.serve.llm, and what is refused before anything starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deployments import app
from kb_ray import serve_file as serve
from kb_ray.errors import ConfigError


def _model_folder(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return str(folder)


def _config(**model: Any) -> dict[str, Any]:
    args = app.parse({"models": [{"model_id": "m", "source": "org/model", **model}]})
    config: dict[str, Any] = app.serving_args(args)["llm_configs"][0]
    return config


def test_a_gpu_model_asks_for_a_gpu_of_its_kind_per_worker() -> None:
    config = _config(accelerator="H100", cpus=2, replicas=3, engine={"tensor_parallel_size": 2})
    assert config["accelerator_type"] == "H100"
    assert config["accelerator_config"] == {"kind": "gpu"}
    assert config["placement_group_config"] == {
        "bundle_per_worker": {"CPU": 2.0, "GPU": 1.0},
        "strategy": "STRICT_PACK",
    }
    assert config["deployment_config"]["num_replicas"] == 3
    assert config["engine_kwargs"] == {"tensor_parallel_size": 2}


def test_a_cpu_model_asks_for_no_gpu() -> None:
    config = _config(device="cpu")
    assert config["accelerator_type"] is None
    assert config["placement_group_config"]["bundle_per_worker"] == {"CPU": 1.0}


def test_options_of_the_file_win_over_what_is_set_for_every_deployment() -> None:
    config = _config(deployment={"num_replicas": None, "autoscaling_config": {"min_replicas": 1}})
    assert config["deployment_config"]["num_replicas"] is None


def test_serving_stays_off_nodes_kept_for_others_unless_told_otherwise() -> None:
    selector = "placement_group_bundle_label_selector"
    assert _config()["deployment_config"][selector] == [{"kb-pool": "!in(bench, train)"}]
    assert _config(nodes={"kb-pool": "serve"})["deployment_config"][selector] == [{"kb-pool": "serve"}]
    assert selector not in _config(nodes={})["deployment_config"]
    args = app.serving_args(app.parse({"models": [{"model_id": "m", "source": "org/model"}]}))
    assert args["ingress_deployment_config"]["ray_actor_options"]["label_selector"] == app.NODES


@pytest.mark.parametrize(
    ("models", "seconds"),
    [([{}], 20.0), ([{"graceful_shutdown_timeout_s": 5}], 5.0), ([{}, {"graceful_shutdown_timeout_s": "700"}], 700.0)],
)
def test_the_front_leaves_no_sooner_than_its_slowest_model(models: list[dict[str, Any]], seconds: float) -> None:
    args = {"models": [{"model_id": f"m{n}", "source": "s", "deployment": d} for n, d in enumerate(models)]}
    front = app.serving_args(app.parse(args))["ingress_deployment_config"]
    assert front["graceful_shutdown_timeout_s"] == seconds


def test_a_repository_or_prefix_is_passed_on_as_it_is() -> None:
    for source in ("org/model", "s3://bucket/model"):
        assert _config(source=source)["model_loading_config"]["model_source"] == source


def test_the_environment_overrides_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_MODEL", _model_folder(tmp_path / "there"))
    config = _config(source="./models/nowhere", source_env="SOME_MODEL")
    assert config["model_loading_config"]["model_source"] == str(tmp_path / "there")


def test_a_folder_that_holds_no_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no model of m in {tmp_path}: bake it"):
        _config(source=str(tmp_path), missing="bake it")


def model(**fields: Any) -> dict[str, Any]:
    return {"models": [{"model_id": "m", "source": "s", **fields}]}


@pytest.mark.parametrize(
    ("args", "where"),
    [
        ({}, "models: Field required"),
        ({"models": []}, "models: List should have at least 1 item"),
        ({"models": [{"model_id": "m", "source": "s", "gpus": 1}]}, "models.0.gpus: no such field; did you mean cpus"),
        ({"models": [{"model_id": "m", "source": "s", "replicas": 0}]}, "models.0.replicas"),
        ({"models": [{"model_id": "m", "source": "s", "device": "cpu", "accelerator": "H100"}]}, "models.0"),
        (model(engine={"tensor_parallel_size": "four"}), r"models.0.engine: tensor_parallel_size is 'four'"),
        (model(engine={"pipeline_parallel_size": None}), "models.0.engine: pipeline_parallel_size is None"),
        (model(deployment={"autoscaling_config": "auto"}), "models.0.deployment.autoscaling_config is 'auto'"),
        (
            model(deployment={"autoscaling_config": {"max_replica": 3}}),
            r"models.0.deployment.autoscaling_config.max_replica is no field .*did you mean max_replicas\?",
        ),
        (
            model(deployment={"autoscaling_config": {"min_replicas": "two"}}),
            "models.0.deployment.autoscaling_config.min_repl",
        ),
        (model(env={"HF_TOKEN": "hf_x"}), "models.0.env: .*HF_TOKEN would stand in Ray's logs"),
        (model(env={"MY_API_KEY": "hf_x"}), "models.0.env: .*MY_API_KEY would stand in Ray's logs"),
        (model(env={"hf_token": "hf_x"}), "models.0.env: hf_token would stand in Ray's logs"),
        (model(env={"TOKEN": "hf_x"}), "models.0.env: TOKEN would"),
        (model(env={"PASSWORD": "hf_x"}), "models.0.env: PASSWORD would"),
        (model(env={"HTTPS_PROXY": "http://me:hf_x@proxy"}), "models.0.env: HTTPS_PROXY would"),
        (model(engine={"hf_token": "hf_x"}), "models.0.engine: hf_token would"),
        (
            model(deployment={"ray_actor_options": {"runtime_env": {"env_vars": {"HF_TOKEN": "hf_x"}}}}),
            r"models.0.deployment: ray_actor_options\.runtime_env\.env_vars\.HF_TOKEN would stand in Ray's logs",
        ),
        (
            model(deployment={"autoscaling_config": {"min_replicas": 3, "max_replicas": 2}}),
            r"models.0.deployment.autoscaling_config: max_replicas \(2\) .* min_replicas",
        ),
    ],
)
def test_an_unusable_argument_is_named(args: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=f"deployment argument {where}") as caught:
        app.parse(args)
    assert "\n" not in str(caught.value)
    assert "hf_x" not in str(caught.value)


def test_each_wrong_argument_is_a_line_with_what_was_meant() -> None:
    wrong = {
        "model_idd": "m", "source": "s", "device": "tpu", "accelerator": "H1000",
        "engine": {"tensor_parallel_size": 0}, "lora": {"dynamic_lora_loading_pth": "s3://b/l"},
        "deployment": {
            "health_check_timeout": 60, "max_ongoing_request": 256, "max_ongoing_requests": "lots",
            "max_constructor_retry_count": "often", "ray_actor_options": {"num_cpu": 1},
            "request_router_config": {"request_router_clas": "a.b"}, "logging_config": {"log_levl": "INFO"},
        },
    }  # fmt: skip
    lines = list(app.faults({"models": [wrong], "modles": [], "foo": 1}))
    wanted = [
        r"modles: no such field; did you mean models\?",
        r"foo: no such field; known: ingress_replicas, models",
        r"models\.0\.model_idd: no such field; did you mean model_id\?",
        r"models\.0\.model_id: Field required",
        r"models\.0\.device: Input should be 'cpu' or 'gpu'",
        r"models\.0\.accelerator: Ray knows no 'H1000'; did you mean H100\?",
        r"models\.0\.engine: tensor_parallel_size is 0",
        r"models\.0\.lora\.dynamic_lora_loading_pth is no field .* did you mean dynamic_lora_loading_path\?",
        r"models\.0\.deployment\.health_check_timeout is no field .* did you mean health_check_timeout_s\?",
        r"models\.0\.deployment\.max_ongoing_request is no field .* did you mean max_ongoing_requests\?",
        r"models\.0\.deployment\.max_ongoing_requests: Input should be a valid integer",
        r"models\.0\.deployment\.max_constructor_retry_count: Input should be a valid integer",
        r"models\.0\.deployment\.ray_actor_options\.num_cpu is no field .* did you mean num_cpus\?",
        r"models\.0\.deployment\.request_router_config\.request_router_clas is no .* mean request_router_class\?",
        r"models\.0\.deployment\.logging_config\.log_levl: no such field; did you mean log_level\?",
    ]
    told = [sum(re.match(pattern, line) is not None for line in lines) for pattern in wanted]
    assert told == [1] * len(wanted), lines
    assert len(lines) == len(wanted), lines


def test_options_of_a_deployment_that_serve_takes_are_taken() -> None:
    router = {"request_router_class": "ray.serve.llm.request_router.PrefixCacheAffinityRouter"}
    taken = {
        "max_constructor_retry_count": 1, "health_check_timeout_s": 60, "num_replicas": "auto",
        "max_surge_percent": 100,
        "request_router_config": router, "ray_actor_options": {"num_cpus": 0, "label_selector": {"a": "b"}},
        "placement_group_bundle_label_selector": [{"kb-pool": "serve"}],
    }  # fmt: skip
    assert list(app.faults(model(deployment=taken, accelerator="A100-80G"))) == []


def test_what_only_looks_like_a_secret_is_taken() -> None:
    env = {
        "AWS_SHARED_CREDENTIALS_FILE": "/f",
        "HF_TOKEN_PATH": "/f",
        "TOKENIZERS_PARALLELISM": "0",
        "A": "http://h:1/x",
    }
    args = app.parse(model(env=env, engine={"hf_token": True, "hf_overrides": {"pad_token": "<pad>"}}))
    assert args.models[0].env == env


def test_the_environment_is_settled_before_the_application_is_built_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_MODEL", "s3://there")
    args = {**model(source_env="SOME_MODEL", engine={"seed": 1}), "ingress_replicas": 2}
    assert app.settled(args) == {
        **model(source="s3://there", source_env=None, engine={"seed": 1}),
        "ingress_replicas": 2,
    }


def test_a_deployment_is_found_by_name_or_path_and_an_unknown_one_lists_the_known(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("applications: []")
    assert serve.find("smollm2_cpu") == serve.FOLDER / "smollm2_cpu.yaml"
    assert serve.find(str(file)) == file
    with pytest.raises(ConfigError, match=r"no deployment xyz: .* one of: .*smollm2_cpu"):
        serve.find("xyz")


@pytest.mark.parametrize("text", ["", "- 1", "applications: {}", "a: [", "a: \x00"])
def test_a_file_that_is_no_serve_config_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=str(file)) as caught:
        serve.read(file)
    assert "\n" not in str(caught.value)
