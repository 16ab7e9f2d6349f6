"""The front of the models: that an answer may take longer than Ray's 600 s, whatever a deployment file says of it.

Nothing is served: the front's own code is asked in this process, and files are built as Serve builds them, up to what
its replicas would get.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deployments import app
from kb_ray import serve_checkpoint
from kb_ray.serve_file import find, names, read
from tests.unit.deployments.adapter_folders import make_base, make_run

LIMIT, VARIABLE = "DEFAULT_LLM_ROUTER_HTTP_TIMEOUT", "RAY_SERVE_LLM_ROUTER_HTTP_TIMEOUT"
BRIEF_S, ANSWER_S, LONG_S = 0.05, 0.5, 60.0


@pytest.fixture
def ingress(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Ray's module of the front, its limit so short that no answer arrives."""
    from ray.llm._internal.serve.core.ingress import ingress as module

    monkeypatch.delenv(VARIABLE, raising=False)
    assert getattr(module, LIMIT) == 600, "Ray's own"
    monkeypatch.setattr(module, LIMIT, BRIEF_S)
    return module


async def status(front: Any) -> int:
    """What a front answers whose model takes half a second."""
    from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionResponse, OpenAIHTTPException

    async def answers(**_: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(ANSWER_S)
        yield ChatCompletionResponse(model="m", choices=[], usage={})

    front._get_response = answers
    try:
        return int((await front._process_llm_request(None, "chat")).status_code)
    except OpenAIHTTPException as error:
        return error.status_code


async def test_an_answer_may_take_longer_than_rays_own_limit(ingress: ModuleType) -> None:
    from deployments.front import Front

    assert await status(ingress.OpenAiIngress({}, {})) == 408
    assert await status(Front({}, {}, answer_limit_s=LONG_S)) == 200


async def test_a_limit_that_somebody_set_by_rays_variable_holds(
    ingress: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deployments.front import Front

    monkeypatch.setenv(VARIABLE, str(BRIEF_S))
    assert await status(Front({}, {}, answer_limit_s=LONG_S)) == 408


def deployed(application: dict[str, Any]) -> dict[str, Any]:
    """Deployment -> what its replicas would get, with what the file says over what the code says."""
    from ray.serve._private.application_state import override_deployment_info
    from ray.serve._private.build_app import build_app
    from ray.serve._private.deployment_info import DeploymentInfo
    from ray.serve.schema import ServeApplicationSchema

    # A handle of Serve's own would start Ray.
    built = build_app(
        app.build(application["args"]), name=application["name"], make_deployment_handle=lambda part, _: part.name
    )
    infos = {
        part.name: DeploymentInfo(
            deployment_config=part._deployment_config, replica_config=part._replica_config, start_time_ms=0,
            deployer_job_id="", version="1",
        )
        for part in built.deployments
    }  # fmt: skip
    found: dict[str, Any] = override_deployment_info(infos, ServeApplicationSchema.model_validate(application))
    return found


def check_front(application: dict[str, Any]) -> None:
    """Asserts that it waits for any answer that its models finish, and leaves no sooner than they."""
    from deployments.front import Front

    parts = deployed(application)
    front = parts.pop("OpenAiIngress")
    leaving = max(model.deployment_config.graceful_shutdown_timeout_s for model in parts.values())
    assert front.deployment_config.graceful_shutdown_timeout_s == leaving
    assert issubclass(front.replica_config.deployment_def, Front)
    assert front.replica_config.init_kwargs["answer_limit_s"] == 86_400 >= leaving


def applications() -> list[tuple[str, int]]:
    """(file, place) of each application with models."""
    files = {name: read(find(name))["applications"] for name in names()}
    return [(name, at) for name, found in files.items() for at, one in enumerate(found) if "models" in one["args"]]


@pytest.mark.parametrize(("name", "at"), applications())
def test_no_file_takes_that_from_the_front(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its folder need not be there.
    monkeypatch.setenv("KB_RAY_SMOLLM2", "org/model")
    check_front(read(find(name))["applications"][at])


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_nor_does_a_checkpoints_application(tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_checkpoint, "vllm_device", lambda: device)
    run = make_run(tmp_path / "run", make_base(tmp_path / "base"))
    check_front(serve_checkpoint.config_of(run)["applications"][0])
