"""`python -m kb_ray.serve`: serves the models of one deployment file until Ctrl-C.

For one machine, or a cluster that this machine heads. On a cluster, `serve deploy FILE` takes the same file
and leaves it running. Knows the shape of a Serve config file, not what the applications in it are.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from kb_ray import cluster
from kb_ray.errors import ConfigError, InfraError, KbRayError
from kb_ray.serve_needs import explain, missing, needs

FOLDER = Path(__file__).resolve().parent.parent / "deployments"
DEFAULT = "smollm2_cpu"
ANSWER_TIMEOUT_S = 60.0
"""From the application's start to its first answer over HTTP."""


def find(name: str) -> Path:
    """The file that `name` means: a path, or a name in the folder of deployments."""
    for path in (Path(name), FOLDER / f"{name}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml"))) or "none"
    raise ConfigError(f"no deployment {name}: pass a YAML file, or one of: {known}")


def read(path: Path) -> dict[str, Any]:
    """A Serve config file. ConfigError where it is no such thing."""
    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict) or not isinstance(config.get("applications"), list):
        raise ConfigError(f"{path} is no Serve config: it has no list of applications")
    return config


def deploy(config: dict[str, Any], *, host: str | None = None, port: int | None = None) -> str:
    """Deploys every application of `config` on the Ray that is connected; returns the URL that ends in /v1.

    Takes a minute or more: it returns when the models answer. ConfigError for an unusable config and where
    Serve runs already, InfraError where a model did not come up.
    """
    from ray import serve

    # Progress of Serve and of the libraries it loads: the replicas' own logs keep what matters.
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if serve.status().proxies:
        raise ConfigError("Serve runs already on this cluster: use `serve deploy`, or `serve shutdown` first")
    http = {**config.get("http_options", {})}
    http |= {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    _check_port(str(http.get("host", "127.0.0.1")), int(http.get("port", 8000)))
    _check_gpus(config)
    applications = [(app, _build(app)) for app in config["applications"]]
    serve.start(proxy_location=config.get("proxy_location"), http_options=http)
    for app, built in applications:
        try:
            serve.run(built, name=app["name"], route_prefix=app.get("route_prefix", "/"))
        except RuntimeError as error:
            why = explain(f"{error} {_status_of(app['name'])}") or "see its replicas' logs in the Ray dashboard"
            raise InfraError(f"application {app['name']} did not come up: {error}; {why}") from error
    prefix = applications[0][0].get("route_prefix", "/").rstrip("/")
    url = f"http://{http.get('host', '127.0.0.1')}:{http.get('port', 8000)}{prefix}/v1"
    _await_models(url)
    return url


def _check_port(host: str, port: int) -> None:
    """ConfigError where something else listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port} ({error.strerror}): give another --port") from None


def _check_gpus(config: dict[str, Any]) -> None:
    """ConfigError where the cluster has too few GPUs and brings no further nodes by itself; else a note."""
    import ray

    nodes = [node.get("Resources", {}) for node in ray.nodes() if node.get("Alive")]
    lacking = missing(needs(config), nodes)
    if lacking is None:
        return
    # A cluster that grows shows it by a head without GPUs among several node types; a single node does not grow.
    if len(nodes) == 1:
        raise ConfigError(f"{lacking}: start it on a cluster that has them, or name a smaller deployment")
    print(f"waiting for nodes: {lacking}", flush=True)


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
    module, _, attribute = str(app.get("import_path", "")).partition(":")
    try:
        builder = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"application {app.get('name')}: import_path {app.get('import_path')!r} fails: {error}"
        ) from error
    return builder(app.get("args", {}))


def _await_models(url: str) -> None:
    give_up = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=10):
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
    print("starting (a minute or more) ...", flush=True)
    try:
        url = deploy(config, host=host, port=port)
        print(f"serving at {url}  (Ctrl-C stops)", flush=True)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        print("stopping ...", flush=True)
    stop()


if __name__ == "__main__":
    sys.exit(main())
