"""Each deployment file as `serve deploy` builds it: by Serve's own task, the file's overrides over the code's options.

What is looked at is the last thing before replicas start, so that no GPU is needed.
"""

from __future__ import annotations

from typing import Any

import pytest

from deployments import app
from kb_ray.serve_file import find, read

GPU_FILES = ("glm45_air", "gpt_oss_120b", "qwen25_coder_7b", "qwen3_235b")
S3 = "http://127.0.0.1:9/an-s3-of-ones-own"


@pytest.fixture(scope="module")
def options(ray_cluster: str) -> dict[str, dict[str, dict[str, Any]]]:
    """File -> deployment -> ray_actor_options of its replicas, with an S3 named for the application."""
    import ray
    from ray.serve._private.application_state import (
        build_serve_application,
        deploy_args_to_deployment_info,
        override_deployment_info,
    )
    from ray.serve.schema import LoggingConfig, ServeApplicationSchema

    schemas = {}
    for name in GPU_FILES:
        (application,) = read(find(name))["applications"]
        application["args"]["models"][0]["env"] = {"OWN": name}
        application["runtime_env"] = {"env_vars": {"AWS_ENDPOINT_URL": S3}}
        schemas[name] = ServeApplicationSchema.model_validate(application)

    def build() -> dict[str, Any]:
        # What Serve runs as a task for each application: in one process here, which loads vLLM once.
        built = build_serve_application._function
        return {
            name: built(schema.import_path, "1", name, schema.args, LoggingConfig(), None, {}, {}, {})
            for name, schema in schemas.items()
        }

    found = {}
    task = ray.remote(num_cpus=0, max_calls=1, runtime_env=schemas[GPU_FILES[0]].runtime_env)(build)
    for name, (_, parts, failure) in ray.get(task.remote()).items():
        assert failure is None
        infos = {part["deployment_name"]: deploy_args_to_deployment_info(**part, app_name=name) for part in parts}
        final = override_deployment_info(infos, schemas[name])
        found[name] = {part: info.replica_config.ray_actor_options for part, info in final.items()}
    return found


@pytest.mark.parametrize("name", GPU_FILES)
def test_the_front_and_the_model_find_adapters_on_an_s3_of_ones_own(
    options: dict[str, dict[str, dict[str, Any]]], name: str
) -> None:
    parts = dict(options[name])
    front = parts.pop("OpenAiIngress")
    assert front["runtime_env"]["env_vars"]["AWS_ENDPOINT_URL"] == S3
    (model,) = parts.values()
    assert model["runtime_env"]["env_vars"].items() >= {"AWS_ENDPOINT_URL": S3, "OWN": name}.items()


@pytest.mark.parametrize("name", GPU_FILES)
def test_the_front_keeps_what_the_code_gives_it(options: dict[str, dict[str, dict[str, Any]]], name: str) -> None:
    front = options[name]["OpenAiIngress"]
    assert (front["num_cpus"], front["label_selector"]) == (0, app.NODES)
