"""Serve's applications as they come up, answer and end: what is waited for, told meanwhile, and why one did not come.

For the Ray that is connected. Does not know how anything is deployed.
"""

from __future__ import annotations

import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kb_ray import serve_logs
from kb_ray.errors import InfraError
from kb_ray.serve_needs import explain, telling

if TYPE_CHECKING:
    from ray.serve.schema import ApplicationStatusOverview, DeploymentStatusOverview

ANSWER_TIMEOUT_S = 60.0
"""From the application's start to its first answer over HTTP."""
TELL_S = 30.0
"""From one line about what is waited for to the next."""
END_S = 30.0
"""How long replicas may take to end; after that they end by themselves, or with the Ray that was started for them."""
_POLL_S = 0.5
_MESSAGE_CHARS = 200
_OF_ITSELF = re.compile(r"^Deployment '[^']*' in application '[^']*' (has )?")


def await_running(names: Sequence[str], started: float) -> None:
    """Returns when all of these applications run; tells every 30 s how far they are. InfraError where Serve has given
    one up. `started`: seconds since 1970."""
    from ray import serve

    tell = TELL_S
    while True:
        found = serve.status().applications
        for name in names:
            if name not in found:
                raise InfraError(f"application {name} was deleted while it started")
            if found[name].status == "DEPLOY_FAILED":
                raise _failure(name, found[name], started)
        coming = {name: found[name] for name in names if found[name].status != "RUNNING"}
        if not coming:
            return
        if (waited := time.time() - started) >= tell:
            print(f"after {waited:.0f} s: {how_far(coming)}", flush=True)
            tell = waited + TELL_S
        time.sleep(_POLL_S)


def how_far(applications: Mapping[str, ApplicationStatusOverview]) -> str:
    """One line on each application's state and its deployments' replicas, and what Serve says of these."""
    return "; ".join(
        f"{name} is {_word(found.status)}: "
        + (", ".join(_replicas(one, of) for one, of in found.deployments.items()) or "its deployments are being built")
        for name, found in applications.items()
    )


def _replicas(name: str, found: DeploymentStatusOverview) -> str:
    states = {_word(state): count for state, count in found.replica_states.items()}
    wanted = sum(count for state, count in states.items() if state != "stopping")
    # What it begins with stands here already, and its first sentence says enough.
    message = _OF_ITSELF.sub("", " ".join(found.message.split())).split(". ")[0][:_MESSAGE_CHARS]
    return f"{states.get('running', 0)} of {wanted} replicas of {name} up" + (f" ({message})" if message else "")


def _word(state: str) -> str:
    # Its own kinds of text would show their names.
    return str(getattr(state, "value", state)).lower().replace("_", " ")


def _failure(name: str, found: ApplicationStatusOverview, started: float) -> InfraError:
    """Says why an application did not come up, after the lines of the logs that tell it."""
    said = " ".join([found.message, *(deployment.message for deployment in found.deployments.values())])
    log = f"{said}\n{serve_logs.recent(started)}"
    for line in telling(log):
        print(f"log: {line}", file=sys.stderr)
    # They are there also where Ray, and with it the dashboard, ends now.
    why = explain(log) or f"its replicas' logs are in {serve_logs.folder()} of the machine where each of them ran"
    return InfraError(f"application {name} did not come up: {why}")


def await_answer(url: str) -> None:
    """Returns once `url` answers. InfraError where it does not in 60 seconds."""
    give_up = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except OSError as error:
            if time.monotonic() > give_up:
                raise InfraError(f"the application runs but {url} does not answer: {error}") from error
        time.sleep(_POLL_S)


def stop() -> None:
    """Ends all that Serve runs on the Ray that is connected."""
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
    from ray.serve.context import _get_global_client, _set_global_client

    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return
    client.shutdown_cached_handles()
    # `serve.shutdown` waits for an answer that the controller's end breaks off: Ray then prints that this call failed
    # and will be tried again for ever.
    # Somebody else may have ended it already.
    with suppress(RayActorError, GetTimeoutError):
        ray.get(client._controller.graceful_shutdown.remote(wait=False), timeout=END_S)
    give_up = time.monotonic() + END_S
    while _is_there(SERVE_CONTROLLER_NAME, SERVE_NAMESPACE):
        if time.monotonic() > give_up:
            print(f"Serve has not ended in {END_S:.0f} s: replicas finish what they have begun", flush=True)
            break
        time.sleep(_POLL_S)
    _set_global_client(None)


def _is_there(actor: str, namespace: str) -> bool:
    import ray

    try:
        ray.get_actor(actor, namespace)
    except ValueError:
        return False
    return True
