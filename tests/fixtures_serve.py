"""SmolLM2 served by real vLLM on a CPU through Ray Serve, once for all tests of a session.

Knows no test. The model folder is made once and kept in the repository's cache. Adapters are taken from the S3 server
of the session.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb_ray import serve as kb_serve
from kb_ray.env_vars import SECRETS
from kb_ray.model import smollm2
from tests.fixtures_s3 import S3Server

MODEL_FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "models" / "smollm2-135m"


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The model folder that vLLM serves and PEFT trains."""
    return smollm2.prepare(MODEL_FOLDER)


@pytest.fixture(scope="session")
def adapters_uri(s3_server: S3Server) -> str:
    """Where the served model finds adapters."""
    return f"s3://{s3_server.bucket}/adapters"


@pytest.fixture(scope="session")
def smollm2_url(
    ray_cluster: str, smollm2_folder: Path, s3_server: S3Server, adapters_uri: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:  # fmt: skip
    """URL (ends in /v1) where smollm2-135m-instruct answers. The first use takes a minute or two."""
    from ray import serve

    os.environ["KB_RAY_SMOLLM2"] = str(smollm2_folder)
    config = kb_serve.read(kb_serve.find("smollm2_cpu"))
    (application,) = config["applications"]
    env = _without_secrets(s3_server.env, tmp_path_factory.mktemp("aws") / "credentials")
    application["runtime_env"] = {"env_vars": env}
    model = application["args"]["models"][0]
    model["lora"] = {"dynamic_lora_loading_path": adapters_uri, "max_num_adapters_per_replica": 2}
    model["engine"] |= {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8, "logprobs_mode": "processed_logprobs"}
    yield kb_serve.deploy(config, port=_free_port())
    serve.shutdown()


def _without_secrets(env: dict[str, str], file: Path) -> dict[str, str]:
    """The same with what is secret in a file: a deployment takes no secret."""
    file.write_text(
        f"[default]\naws_access_key_id = {env['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {env['AWS_SECRET_ACCESS_KEY']}\n"
    )
    return {name: env[name] for name in env if name not in SECRETS} | {"AWS_SHARED_CREDENTIALS_FILE": str(file)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
