"""Joins the Ray cluster that there is, or starts a local one, with one clear line when that fails.

Imports Ray only inside functions, after the environment is as Ray wants it. Does not know what the cluster
is used for.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb_ray import env_vars
from kb_ray.errors import ConfigError, InfraError

_LOCAL_OBJECT_STORE_BYTES = 512 * 1024**2
_PROBE_S = 5.0
_REASON_CHARS = 500
RUN_ID_KEY = "kb_ray_run_id"
"""Where a job's metadata holds the run id."""


@dataclass(frozen=True)
class Cluster:
    """What the cluster says of itself when it is joined."""

    address: str
    joined: bool
    """False where it was started for this run."""
    dashboard: str | None
    gpus: int
    cpus: int
    gpu_type: str | None
    """Type of its GPUs as Ray labels it, e.g. `H100`, where all are alike."""


def connect(run_id: str, address: str | None = None) -> Cluster:
    """Ray connected, with `run_id` in the job's metadata.

    `address` is host:port; None takes RAY_ADDRESS, then a cluster started on this machine, then starts one.
    ConfigError where a cluster is named and does not answer, or refuses the token; InfraError where Ray fails.
    """
    prepare_environment()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    known = known_address(address)
    if known:
        probe(*known)
    import ray
    from ray.exceptions import AuthenticationError
    from ray.job_config import JobConfig

    try:
        context = ray.init(
            address=known[0] if known else None,
            job_config=JobConfig(metadata={RUN_ID_KEY: run_id}),
            dashboard_host="127.0.0.1",
            include_dashboard=True,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except AuthenticationError as error:
        raise ConfigError(_token_needed("the Ray cluster", str(error).split(". ")[0])) from None
    except ConnectionError as error:
        raise ConfigError(f"cannot join Ray: {error}; see `ray status`") from None
    # Ray raises bare exceptions where a node does not come up, versions differ or a folder cannot be written.
    except Exception as error:
        reason = _reason(error)
        if "version mismatch" in reason.lower():
            raise ConfigError(f"{reason}; run the driver with the cluster's Ray and Python") from None
        what, logs = ("could not be joined", "on its head") if known else ("did not start here", "here")
        raise InfraError(f"Ray {what}: {reason}; try again, or see {logs_folder()} {logs}") from error
    if callable(on_sigterm) and threading.current_thread() is threading.main_thread():
        # Ray puts a handler of its own in its place, which ends the process with another exit code.
        signal.signal(signal.SIGTERM, on_sigterm)
    return _describe(ray, context, joined=known is not None)


def _reason(error: Exception) -> str:
    """What Ray says, in one line of bounded length. Where it quotes a log, what counts stands at both ends."""
    said = " ".join(str(error).split()) or type(error).__name__
    half = _REASON_CHARS // 2
    return said if len(said) <= _REASON_CHARS else f"{said[:half]} ... {said[-half:]}"


def logs_folder() -> str:
    """Where the last Ray that started on this machine logs."""
    return str(_ray_folder() / "session_latest" / "logs")


def disconnect() -> None:
    """Leaves the cluster; ends it where it was started here."""
    import ray

    ray.shutdown()


def prepare_environment() -> None:
    """Sets what Ray must find before it is imported."""
    os.environ[env_vars.RAY_UV_RUN] = "0"
    # A run moves kilobytes through the object store: a third of the machine would be wasted on it.
    os.environ.setdefault(env_vars.RAY_OBJECT_STORE_MAX, str(_LOCAL_OBJECT_STORE_BYTES))
    os.environ.setdefault(env_vars.RAY_USAGE_STATS, "0")
    if token() is not None:
        # Ray enables this by itself only after its client is set up, and then loops on InvalidAuthToken.
        os.environ.setdefault(env_vars.RAY_AUTH_MODE, "token")


def token() -> str | None:
    """The cluster token that Ray would use; None where there is none."""
    if found := os.environ.get(env_vars.RAY_AUTH_TOKEN):
        return found
    named = os.environ.get(env_vars.RAY_AUTH_TOKEN_PATH)
    try:
        return Path(os.path.expanduser(named or "~/.ray/auth_token")).read_text().strip() or None
    except OSError:
        return None


def known_address(address: str | None) -> tuple[str, str] | None:
    """(host:port, where that comes from) of the cluster to join; None where one is to be started."""
    if address:
        return _host_port(address, "--ray-address"), "--ray-address"
    named = os.environ.get(env_vars.RAY_ADDRESS, "")
    if named not in ("", "auto", "local"):
        return _host_port(named, env_vars.RAY_ADDRESS), env_vars.RAY_ADDRESS
    record = _ray_folder() / "ray_current_cluster"
    if named != "local" and record.is_file():
        return record.read_text().strip(), str(record)
    if named == "auto":
        raise ConfigError("RAY_ADDRESS is auto but no cluster was started here: unset it, or `ray start --head`")
    return None


def _ray_folder() -> Path:
    """As Ray itself looks for it, where nobody names another."""
    folder = os.environ.get(env_vars.RAY_TMPDIR) or (os.environ.get("TMPDIR") if sys.platform == "linux" else None)
    return Path(folder or "/tmp") / "ray"


def _host_port(address: str, origin: str) -> str:
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise ConfigError(
            f"{origin}: expected host:port of a Ray head such as 10.0.0.1:6379 (got {address}); "
            "to run there from elsewhere use `ray job submit`"
        )
    return address


def probe(address: str, origin: str) -> None:
    """Asks the head for its id, as Ray does, but once: Ray repeats a refusal for 20 s, waits 120 s in silence."""
    import grpc

    key = token()
    metadata = [("authorization", f"Bearer {key}")] if key else None
    with grpc.insecure_channel(address) as channel:
        ask: Any = channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")
        try:
            ask(b"", timeout=_PROBE_S, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                refused = "refuses this machine's token" if key else "needs a token and there is none here"
                raise ConfigError(_token_needed(f"the Ray cluster at {address}", refused)) from None
            raise ConfigError(
                f"the Ray cluster at {address} (from {origin}) does not answer: start it with "
                f"`ray start --head`, or drop {origin} to use a local one"
            ) from None


def _token_needed(cluster: str, problem: str) -> str:
    return (
        f"{cluster} {problem}: put the cluster's token (`ray get-auth-token` on its head) into "
        f"~/.ray/auth_token or {env_vars.RAY_AUTH_TOKEN}"
    )


def _describe(ray: Any, context: Any, *, joined: bool) -> Cluster:
    resources = ray.cluster_resources()
    types = {
        node["Labels"].get("ray.io/accelerator-type")
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("GPU")
    }
    return Cluster(
        address=str(context.address_info["gcs_address"]),
        joined=joined,
        dashboard=context.dashboard_url or None,
        gpus=int(resources.get("GPU", 0)),
        cpus=int(resources.get("CPU", 0)),
        gpu_type=types.pop() if len(types) == 1 else None,
    )


def local_gpus() -> int:
    """GPUs of this machine, as far as its driver and CUDA_VISIBLE_DEVICES show them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return 0
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def unseen_gpus() -> bool:
    """Whether this machine may have GPUs that `local_gpus` does not see: those of Windows, within its Linux."""
    return Path("/dev/dxg").exists()
