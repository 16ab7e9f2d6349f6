"""`python -m kb_ray.serve`: serves the models of one deployment file until Ctrl-C.

For one machine, or a cluster that this machine heads. On a cluster, `serve deploy FILE` takes the same file
and leaves it running. Knows the shape of a Serve config file, not what the applications in it are.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from kb_ray import cluster, serve_logs
from kb_ray.errors import ConfigError, InfraError, KbRayError
from kb_ray.exiting import end
from kb_ray.serve_file import check, find, module_of, read
from kb_ray.serve_needs import explain, grows, missing, needs, telling

DEFAULT = "smollm2_cpu"
ANSWER_TIMEOUT_S = 60.0
"""From the application's start to its first answer over HTTP."""


def deploy(config: dict[str, Any], *, host: str | None = None, port: int | None = None) -> str:
    """Deploys every application of `config` on the Ray that is connected; returns its URL, of models with /v1.

    Takes a minute or more: it returns when it answers. ConfigError for an unusable config and where
    Serve runs already, InfraError where a model did not come up.
    """
    from ray import serve

    # Progress of Serve and of the libraries it loads: the replicas' own logs keep what matters.
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    check(config)
    _check_gpus(config)
    if serve.status().proxies:
        raise ConfigError("Serve runs already on this cluster: use `serve deploy`, or `serve shutdown` first")
    http = _http(config, host, port)
    _check_port(http["host"], http["port"])
    applications = [(app, _build(app)) for app in config["applications"]]
    serve.start(proxy_location=config.get("proxy_location"), http_options=http)
    for app, built in applications:
        started = time.time()
        try:
            serve.run(built, name=app["name"], route_prefix=app.get("route_prefix", "/"))
        except RuntimeError as error:
            raise _failure(app["name"], started) from error
    root = f"http://{_reachable(http['host'])}:{http['port']}"
    url = root + str(applications[0][0].get("route_prefix", "/")).rstrip("/")
    if any("models" in (app.get("args") or {}) for app, _ in applications):
        url += "/v1"
        _await_answer(f"{url}/models")
    else:
        _await_answer(f"{root}/-/healthz")
    return url


def _http(config: dict[str, Any], host: str | None, port: int | None) -> dict[str, Any]:
    """Serve's HTTP options: the file's, with what was asked for over them."""
    http = {"host": "127.0.0.1", "port": 8000, **config.get("http_options", {})}
    return {**http, **{key: value for key, value in (("host", host), ("port", port)) if value is not None}}


def _reachable(host: str) -> str:
    """An address to talk to, for one to listen on."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)


def _check_port(host: str, port: int) -> None:
    """ConfigError where something else listens there already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port} ({error.strerror}): end what serves there, or give another --port"
            ) from None
        except OverflowError:
            raise ConfigError(f"--port {port}: ports go from 0 to 65535") from None


def _check_vllm(config: dict[str, Any]) -> None:
    """ConfigError where a model is to be served and this Python has no vLLM: its arguments are read here."""
    models = any("models" in (app.get("args") or {}) for app in config["applications"])
    if models and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "serving a model needs vLLM in this Python: `make demo-llm` installs it for a CPU, "
            "`pip install 'kb-ray[serve]'` for GPUs"
        )


def _check_gpus(config: dict[str, Any]) -> None:
    """ConfigError where the cluster has too few GPUs and brings no further nodes by itself; else a note."""
    import ray
    from ray._private.state import available_resources_per_node

    nodes = [node.get("Resources", {}) for node in ray.nodes() if node.get("Alive")]
    wanted = needs(config)
    if lacking := missing(wanted, nodes):
        if len(nodes) == 1 and not grows(nodes):
            raise ConfigError(f"{lacking}: start it on a cluster that has them, or name a smaller deployment")
        print(f"waiting for nodes: {lacking}", flush=True)
    elif missing(wanted, list(available_resources_per_node().values())):
        print("waiting for GPUs: the cluster has enough, but others use them (`ray list actors` says who)", flush=True)


def _failure(application: str, started: float) -> InfraError:
    """Says why an application did not come up, after the lines of the logs that tell it."""
    log = f"{_status_of(application)}\n{serve_logs.recent(started)}"
    for line in telling(log):
        print(f"log: {line}", file=sys.stderr)
    why = explain(log) or "its replicas' logs are on the Ray dashboard, under Serve"
    return InfraError(f"application {application} did not come up: {why}")


def _status_of(application: str) -> str:
    """What Serve says of an application and its deployments, as text."""
    from ray import serve

    found = serve.status().applications.get(application)
    if found is None:
        return ""
    return " ".join([found.message, *(deployment.message for deployment in found.deployments.values())])


def stop() -> None:
    """Ends all that Serve runs on the Ray that is connected."""
    from ray import serve

    serve.shutdown()


def _build(app: dict[str, Any]) -> Any:
    builder = getattr(module_of(app), str(app["import_path"]).partition(":")[2])
    try:
        return builder(app.get("args") or {})
    except ImportError as error:
        raise ConfigError(
            f"application {app['name']} needs a package that is not here: {error}; "
            "pip install 'kb-ray[serve]', without a GPU requirements/serve-cpu.txt"
        ) from error
    # What ray.serve.llm raises for an argument that vLLM or Serve does not know.
    except (ValueError, TypeError) as error:
        raise ConfigError(f"application {app['name']} cannot be built: {_innermost(error)}") from error


def _innermost(error: BaseException) -> str:
    """The first line of the cause behind a wrapped error."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300] or type(error).__name__


def _await_answer(url: str) -> None:
    give_up = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > give_up:
                raise InfraError(f"the application runs but {url} does not answer: {error}") from error
        time.sleep(0.5)


def main(argv: list[str] | None = None) -> int:
    """Command line. Exit code 2 for a ConfigError, 1 for other failures, 0 when it was stopped."""
    parser = argparse.ArgumentParser(prog="python -m kb_ray.serve", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "model", nargs="?", default=DEFAULT, help="a deployment's name or YAML file (default: %(default)s)"
    )
    parser.add_argument("--host", help="address to listen on (default: the file's)")
    parser.add_argument("--port", type=int, help="port to listen on (default: the file's)")
    parser.add_argument("--ray-address", help="host:port of the cluster to join (default: as Ray finds it)")
    arguments = parser.parse_args(argv)
    try:
        config = read(find(arguments.model))
        cluster.prepare_environment()
        check(config)
        _check_vllm(config)
        http = _http(config, arguments.host, arguments.port)
        _check_port(http["host"], http["port"])
        print("starting (a minute or more) ...", flush=True)
        cluster.connect("serve", arguments.ray_address)
        try:
            _serve_until_stopped(config, arguments.host, arguments.port)
        finally:
            cluster.disconnect()
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def _serve_until_stopped(config: dict[str, Any], host: str | None, port: int | None) -> None:
    # Ray's own handler would end the process before Serve has let go of its replicas.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        url = deploy(config, host=host, port=port)
        print(f"serving at {url}  (Ctrl-C stops)", flush=True)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        print("stopping ...", flush=True)
    stop()


if __name__ == "__main__":
    end(main)
