"""Every environment variable that kb_ray reads or sets, in one place, and how `.env` gets in.

Knows names and meanings only; settings that are also flags are parsed in config_sources.py.
"""

from __future__ import annotations

import os
from pathlib import Path

SETTING_PREFIX = "KB_RAY_"
"""Any flag can be set as KB_RAY_<NAME>, e.g. KB_RAY_BATCH_SIZE=32."""

VLLM_API_KEY = "VLLM_API_KEY"
"""Key of the model server; what --api-key sets."""

KERNELBENCH_ROOT = "KERNELBENCH_ROOT"
"""Local checkout of KernelBench; what --kernelbench-root sets."""

ALIASES = {"api_key": VLLM_API_KEY, "kernelbench_root": KERNELBENCH_ROOT}
"""Settings that are also read from a name of their own, after KB_RAY_<NAME>."""

RAY_ADDRESS = "RAY_ADDRESS"
"""Cluster to join; set by Ray itself inside a submitted job."""

RAY_AUTH_MODE = "RAY_AUTH_MODE"
"""`token` or `disabled`. Set to `token` here, before Ray is imported, where a token exists."""

RAY_AUTH_TOKEN = "RAY_AUTH_TOKEN"
"""The cluster's token itself."""

RAY_AUTH_TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"
"""File with the cluster's token; otherwise ~/.ray/auth_token."""

RAY_TMPDIR = "RAY_TMPDIR"
"""Folder below which Ray keeps sockets and logs."""

RAY_UV_RUN = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""Set to 0 here: otherwise under `uv run` every Ray worker would start through uv again."""

RAY_OBJECT_STORE_MAX = "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"
"""Upper bound of a local cluster's object store; 512 MiB unless set."""

RAY_USAGE_STATS = "RAY_USAGE_STATS_ENABLED"
"""0 unless set: nothing is reported to anybody."""

BENCH_CGROUP = "KB_BENCH_CGROUP"
"""A cgroup v2 folder delegated to bench workers, in which candidates' memory and processes are bounded."""

BENCH_TOKEN = "KB_BENCH_TOKEN"
"""Token of the HTTP evaluation service: the one it asks for, the one its client sends."""

BENCH_TOKEN_FILE = "KB_BENCH_TOKEN_FILE"
"""File of tokens that the HTTP evaluation service asks for, one `NAME TOKEN` a line."""

TINKER_KEY = "TINKER_API_KEY"
"""Key of Tinker's service, for training with `learner` tinker."""

TINKER_URL = "TINKER_BASE_URL"
"""Where that service is; its SDK knows otherwise."""

SECRETS = (
    VLLM_API_KEY, SETTING_PREFIX + "API_KEY", RAY_AUTH_TOKEN, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AWS_ACCESS_KEY_ID", "HF_TOKEN", BENCH_TOKEN, TINKER_KEY,
)  # fmt: skip
"""Variables whose values never appear in what is logged."""

DESCRIBED = {
    VLLM_API_KEY: "key of the model server (--api-key)",
    KERNELBENCH_ROOT: "local checkout of KernelBench (--kernelbench-root)",
    "AWS_ACCESS_KEY_ID": "credentials for s3:// outputs",
    "AWS_SECRET_ACCESS_KEY": "credentials for s3:// outputs",
    "AWS_ENDPOINT_URL": "endpoint of an S3-compatible server; unset for AWS itself",
    "AWS_DEFAULT_REGION": "region of the bucket",
    "HF_TOKEN": "token for gated data sets on the Hugging Face hub",
    RAY_ADDRESS: "Ray cluster to join (--ray-address)",
    RAY_AUTH_MODE: "token or disabled; token where a token is found",
    RAY_AUTH_TOKEN_PATH: "file with the cluster's token; ~/.ray/auth_token otherwise",
    BENCH_TOKEN: "token of evaluation over HTTP, where it is served and where it is used",
    BENCH_TOKEN_FILE: "file of such tokens where it is served, one NAME TOKEN a line",
    TINKER_KEY: "key of Tinker's service, for training there (--learner tinker)",
    BENCH_CGROUP: "on bench nodes: a delegated cgroup v2 folder to bound candidates in",
}
"""Variables that are not flags' KB_RAY_ names, with what each is for; `.env.example` lists the same."""


def load_dotenv(path: Path = Path(".env")) -> None:
    """Puts the variables of `path` into the environment; those already set win. No file is fine."""
    if path.is_file():
        from dotenv import dotenv_values

        for name, value in dotenv_values(path).items():
            if value is not None:
                os.environ.setdefault(name, value)
