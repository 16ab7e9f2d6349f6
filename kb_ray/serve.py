"""`python -m kb_ray.serve`: serves the models of one deployment file, or one checkpoint, until Ctrl-C.

For one machine, or a cluster that this machine heads. On a cluster, `serve deploy FILE` takes the same file
and leaves it running; both hand the whole file to Serve's controller. Knows the shape of a Serve config file, not
what the applications in it are.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from kb_ray import cluster, serve_check, serve_checkpoint, serve_family
from kb_ray.env_vars import load_dotenv
from kb_ray.errors import ConfigError, InfraError, KbRayError
from kb_ray.exiting import end, sigterm_as_ctrl_c
from kb_ray.flag_parser import FlagParser
from kb_ray.serve_address import check_port, http_options, url
from kb_ray.serve_file import check, find, module_of, read, weights_faults
from kb_ray.serve_needs import grows, missing, needs
from kb_ray.serve_waiting import await_answer, await_running, stop
from kb_ray.serve_weights import NotHere

if TYPE_CHECKING:
    import argparse

    from ray.serve.schema import ServeDeploySchema

DEFAULT = "smollm2_cpu"


def deploy(config: dict[str, Any], *, host: str | None = None, port: int | None = None) -> str:
    """Deploys every application of `config` on the Ray that is connected; returns its URL, of models with /v1.

    Takes a minute or more: it returns when it answers. ConfigError for an unusable config and where
    Serve runs already, InfraError where a model did not come up.
    """
    from ray import serve
    from ray.serve.schema import ServeDeploySchema

    # Progress of Serve and of the libraries it loads: the replicas' own logs keep what matters.
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    check(config)
    _check_gpus(config)
    if serve.status().proxies:
        raise ConfigError("Serve runs already on this cluster: use `serve deploy`, or `serve shutdown` first")
    config = _settled(config, host, port)
    check_port(config["http_options"]["host"], config["http_options"]["port"])
    alone = _is_alone()
    _check_weights(config, alone=alone)
    serve_check.check_engine(config)
    _try_builds(config, alone=alone)
    try:
        started = time.time()
        _apply(ServeDeploySchema.model_validate(config))
        await_running([app["name"] for app in config["applications"]], started)
        return _answering(config)
    except InfraError:
        # Else it would be tried for ever, and in the way of the next start.
        stop()
        raise


def _settled(config: dict[str, Any], host: str | None, port: int | None) -> dict[str, Any]:
    """The file as it is deployed: where it listens, and what this process's environment says to its applications."""
    applications = []
    for app in config["applications"]:
        settle = getattr(module_of(app), "settled", None)
        applications.append({**app, "args": settle(app["args"])} if settle and app.get("args") else app)
    return {**config, "http_options": http_options(config, host, port), "applications": applications}


def _apply(config: ServeDeploySchema) -> None:
    """Starts Serve and has it deploy all that the file says, as `serve deploy` does; needs no dashboard."""
    from ray import serve
    from ray.serve.config import gRPCOptions
    from ray.serve.context import _get_global_client

    serve.start(
        proxy_location=config.proxy_location,
        http_options=config.http_options.model_dump(),
        grpc_options=gRPCOptions(**config.grpc_options.model_dump()),
        logging_config=config.logging_config,
        tracing_config=config.tracing_config,
        controller_options=config.controller_options,
    )
    # `serve.run` would build in this process and pass over `deployments`, runtime_env and logging_config of the file.
    _get_global_client().deploy_apps(config)


def _answering(config: dict[str, Any]) -> str:
    """The URL of the first application that has models, else of the first, once it answers."""
    applications = config["applications"]
    models = [app for app in applications if "models" in (app.get("args") or {})]
    prefix = (models or applications)[0].get("route_prefix", "/")
    root = url(config["http_options"])
    address = root + str(prefix or "").rstrip("/") + ("/v1" if models else "")
    await_answer(f"{address}/models" if models else f"{root}/-/healthz")
    return address


def _check_vllm(config: dict[str, Any]) -> None:
    """ConfigError where a model is to be served and this Python has no vLLM: its arguments are read here."""
    models = any("models" in (app.get("args") or {}) for app in config["applications"])
    if models and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "serving a model needs vLLM in this Python: `make demo-llm` installs it for a CPU, "
            "`pip install 'kb-ray[serve]'` for GPUs"
        )


def _check_weights(config: dict[str, Any], *, alone: bool) -> None:
    """ConfigError where a model's folder cannot be read, or is not here and this machine is `alone`."""
    for fault in weights_faults(config):
        if alone or not isinstance(fault, NotHere):
            raise fault


def _is_alone() -> bool:
    """Whether the connected Ray is of this machine only, and no nodes are meant to come."""
    import ray

    nodes = [node.get("Resources", {}) for node in ray.nodes() if node.get("Alive")]
    return len(nodes) == 1 and not grows(nodes)


def _check_gpus(config: dict[str, Any]) -> None:
    """ConfigError where the cluster has too few GPUs and brings no further nodes by itself; else a note."""
    import ray
    from ray._private.state import available_resources_per_node

    nodes = [node.get("Resources", {}) for node in ray.nodes() if node.get("Alive")]
    wanted = needs(config)
    if lacking := missing(wanted, nodes):
        if _is_alone():
            raise ConfigError(f"{lacking}: start it on a cluster that has them, or name a smaller deployment")
        print(f"waiting for nodes: {lacking}", flush=True)
    elif missing(wanted, list(available_resources_per_node().values())):
        print("waiting for GPUs: the cluster has enough, but others use them (`ray list actors` says who)", flush=True)


def _try_builds(config: dict[str, Any], *, alone: bool) -> None:
    """ConfigError where an application cannot be built; one whose folder is not here passes, unless this machine is
    `alone`. Serve builds them once more, in a process of the cluster: here a fault is one line, and at once."""
    for app in config["applications"]:
        try:
            _build(app)
        except NotHere:
            if alone:
                raise


def _build(app: dict[str, Any]) -> None:
    """ConfigError where the application cannot be built from its arguments."""
    builder = getattr(module_of(app), str(app["import_path"]).partition(":")[2])
    try:
        builder(app.get("args") or {})
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


def _parser() -> FlagParser:
    parser = FlagParser(prog="python -m kb_ray.serve", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "model", nargs="?", default=DEFAULT,
        help="a deployment's name or YAML file, or a checkpoint: a training run's output or one of its checkpoints, in "
        "a folder or on s3://BUCKET/PREFIX (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--base", help="of a checkpoint the base model: a folder or a name on the hub (default: as it was trained)"
    )
    parser.add_argument("--host", help="address to listen on (default: the file's)")
    parser.add_argument("--port", type=int, help="port to listen on (default: the file's)")
    parser.add_argument(
        "--check", action="store_true",
        help="only read the file: a line for each thing wrong in it and exit code 2, else 0; of `engine` the names of "
        "arguments and parsers, where this Python has vLLM to ask, and no values",
    )  # fmt: skip
    parser.add_argument("--ray-address", help="host:port of the cluster to join (default: as Ray finds it)")
    return parser


def _named(model: str, base: str | None) -> dict[str, Any]:
    """The Serve config that the command line names."""
    if serve_checkpoint.is_meant(model):
        config = serve_checkpoint.config_of(model, base)
        print(serve_checkpoint.described(config), flush=True)
        return config
    if base is not None:
        raise ConfigError(f"--base is of a checkpoint, and {model} is a deployment: its file names its `source`")
    return read(find(model))


def main(argv: list[str] | None = None) -> int:
    """Command line. Exit code 2 for a ConfigError, 1 for other failures, 130 and 143 after Ctrl-C and SIGTERM."""
    with sigterm_as_ctrl_c() as exit_code:
        try:
            return _run(_parser().parse_args(argv))
        except KbRayError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2 if isinstance(error, ConfigError) else 1
        except KeyboardInterrupt:
            return exit_code()


def _run(arguments: argparse.Namespace) -> int:
    """Checks the file, and serves it until it is interrupted."""
    load_dotenv()
    config = _named(arguments.model, arguments.base)
    cluster.prepare_environment()
    if arguments.check:
        return serve_check.told(config)
    check(config)
    _check_vllm(config)
    http = http_options(config, arguments.host, arguments.port)
    check_port(http["host"], http["port"])
    if cluster.known_address(arguments.ray_address) is None:
        _check_weights(config, alone=True)
    print("starting (a minute or more) ...", flush=True)
    serve_family.adopt()
    joined = cluster.connect("serve", arguments.ray_address)
    try:
        _serve_until_stopped(config, arguments.host, arguments.port, joined)
    finally:
        cluster.disconnect()


def _serve_until_stopped(
    config: dict[str, Any], host: str | None, port: int | None, joined: cluster.Cluster
) -> NoReturn:
    """Raises KeyboardInterrupt, when all is stopped."""
    node = None if joined.joined else serve_family.node()
    try:
        print(f"serving at {deploy(config, host=host, port=port)}  (Ctrl-C stops)", flush=True)
        if not joined.joined:
            print(_joining(joined), flush=True)
        orphans = list[int]()
        while True:
            time.sleep(serve_family.REAP_S)
            orphans = serve_family.reap_orphans(orphans)
    except KeyboardInterrupt:
        print("stopping ...", flush=True)
        with serve_family.ending_with(node, _end_at_once):
            stop()
        raise


def _end_at_once() -> None:
    """Ray has ended before it could be asked to: of signals only SIGTERM does that, to the whole group. It would be
    waited for a minute."""
    if left := serve_family.end_descendants():
        print(f"warning: these processes do not end: {', '.join(left)}", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGTERM)


def _joining(started: cluster.Cluster) -> str:
    """How others use the Ray that was started: a run without its address would start a second one beside it."""
    dashboard = f"; dashboard at http://{started.dashboard}" if started.dashboard else ""
    return f"its Ray: `--ray-address {started.address}` has other commands use it too{dashboard}"


if __name__ == "__main__":
    end(main)
