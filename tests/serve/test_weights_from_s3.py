"""Weights that lie on S3: what a deployment's source becomes, down to the files on a node, from a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import boto3

from deployments import app
from tests.fixtures_s3 import S3Server

ROOT = Path(__file__).parents[2]
_FETCH = """
import json, sys
from ray.llm._internal.common.utils.download_utils import download_model_files
from ray.llm._internal.serve.engines.vllm.vllm_models import VLLMEngineConfig
from ray.serve.llm import LLMConfig

engine = VLLMEngineConfig.from_llm_config(LLMConfig(**json.load(sys.stdin)))
folder = download_model_files(model_id=engine.hf_model_id, mirror_config=engine.mirror_config)
print("\\n" + json.dumps({"bucket": engine.mirror_config.bucket_uri, "name": engine.hf_model_id, "folder": folder}))
"""


def test_a_prefix_is_fetched_to_the_node_under_the_models_own_name(s3_server: S3Server, tmp_path: Path) -> None:
    client = boto3.client("s3", **_credentials(s3_server))
    files = {"config.json": b'{"model_type": "llama"}', "model-00001-of-00001.safetensors": os.urandom(100_000)}
    for file, content in files.items():
        client.put_object(Bucket=s3_server.bucket, Key=f"serving/weights/{file}", Body=content)
    source = f"s3://{s3_server.bucket}/serving/weights"
    args = app.parse({"models": [{"model_id": "mine", "source": source, "accelerator": "H100"}]})
    environment = {**os.environ, **s3_server.env, "HF_HOME": str(tmp_path), "TRANSFORMERS_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _FETCH], input=json.dumps(app.serving_args(args)["llm_configs"][0]), text=True,
        capture_output=True, timeout=300, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert (found["bucket"].rstrip("/"), found["name"]) == (source, "mine")
    assert Path(found["folder"]).is_relative_to(tmp_path)
    fetched = {path.name: path.read_bytes() for path in Path(found["folder"]).iterdir() if path.is_file()}
    assert fetched == files


def _credentials(server: S3Server) -> dict[str, str]:
    return {
        "endpoint_url": server.env["AWS_ENDPOINT_URL"],
        "aws_access_key_id": server.env["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": server.env["AWS_SECRET_ACCESS_KEY"],
        "region_name": server.env["AWS_DEFAULT_REGION"],
    }
