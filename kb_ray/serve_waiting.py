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
_LINES = 1000
"""Of logs, more than any start writes that tell why it failed."""
_OF_ITSELF = re.compile(r"^Deployment '[^']*' in application '[^']*' (has )?")
_FAILED_START = re.compile(r"A replica failed to start with exception\. Retrying(?: (?P<left>\d+) more time\(s\))?\.")
"""How Serve begins to tell of a start that failed; another message takes its place after some seconds."""
_NEVER_STARTED = re.compile(r"more time\(s\)")
"""In it: Serve tries without end once a replica like this one has started."""
_CAUSE_ELSEWHERE = re.compile(r"See root cause above|ActorDiedError|RayActorError")
"""In it: a process of vLLM's failed, or the replica's own is gone, so that only logs can say why."""
_FOR_GOOD = tuple(
    explain(said)
    for said in (
        "No available memory for the cache blocks",
        "is not divisible by weight quantization block",
        "expected target modules in {'q_proj'} but received ['conv1']",
    )
)
"""Advice on what vLLM finds in weights and arguments alone: it finds the same with every try."""


def await_running(names: Sequence[str], started: float) -> None:
    """Returns when all of these applications run; tells every 30 s how far they are, and at once why a start failed.

    InfraError where Serve has given one up, or where its further tries can only fail too. `started`: seconds since
    1970.
    """
    from ray import serve

    tell, failed_starts = TELL_S, _FailedStarts(started)
    while True:
        found = serve.status().applications
        for name in names:
            if name not in found:
                raise InfraError(f"application {name} was deleted while it started")
            if found[name].status == "DEPLOY_FAILED":
                raise _failure(name, found[name], started, failed_starts.told)
        coming = {name: found[name] for name in names if found[name].status != "RUNNING"}
        if not coming:
            return
        due = (waited := time.time() - started) >= tell
        for name, application in coming.items():
            failed_starts.look(name, application, again=due)
        if due:
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


class _FailedStarts:
    """Starts of replicas that failed while others are waited for.

    Serve tries three times for each replica before it gives an application up, and a large model loads its weights
    each time. Logs are those of all that runs on the cluster: they are read only once Serve says that a start has
    failed, and only where it cannot say why itself.
    """

    def __init__(self, started: float) -> None:
        self.told: set[str] = set()
        """Reasons, and lines of logs."""
        self._started = started
        self._seen: set[str] = set()
        self._read: set[str] = set()
        self._unexplained: dict[tuple[str, str], str] = {}

    def look(self, application: str, found: ApplicationStatusOverview, *, again: bool) -> None:
        """Tells why starts failed that were not seen before. `again`: also of those whose reason was not found yet.

        InfraError where it is one for good.
        """
        for name, deployment in found.deployments.items():
            message, failed = deployment.message, _FAILED_START.match(deployment.message)
            # After the last try the application itself fails, and that is told with all there is.
            if failed and failed["left"] != "0" and message not in self._seen:
                self._seen.add(message)
                self._explain(application, name, message)
            elif again and (earlier := self._unexplained.get((application, name))):
                self._explain(application, name, earlier)

    def _explain(self, application: str, deployment: str, message: str) -> None:
        self._unexplained.pop((application, deployment), None)
        log, why = message, explain(message)
        if why is None and _CAUSE_ELSEWHERE.search(message):
            log = self._unread()
            why = explain(log)
            if why is None:
                self._unexplained[application, deployment] = message
        reason = why or (telling(message) or [f"its logs are in {serve_logs.folder()} of the machine where it ran"])[-1]
        if reason in self.told:
            return
        if why is not None:
            _show(log, self.told)
        if why in _FOR_GOOD and _NEVER_STARTED.search(message):
            raise _not_up(application, reason)
        self.told.add(reason)
        print(f"a replica of {deployment} in {application} failed to start, Serve tries again: {reason}", flush=True)

    def _unread(self) -> str:
        """Telling lines of the logs that no earlier failure was explained with: it need not have been for that."""
        lines = telling(serve_logs.recent(self._started), _LINES)
        new = [line for line in lines if line not in self._read]
        self._read.update(new)
        return "\n".join(new)


def _show(log: str, told: set[str]) -> None:
    """Shows the lines of a log that tell why, without those told before."""
    for line in telling(log):
        if line not in told:
            print(f"log: {line}", file=sys.stderr)
            told.add(line)


def _failure(name: str, found: ApplicationStatusOverview, started: float, told: set[str]) -> InfraError:
    """Says why an application did not come up, after the lines of the logs that tell it and were not told yet."""
    said = " ".join([found.message, *(deployment.message for deployment in found.deployments.values())])
    log = f"{said}\n{serve_logs.recent(started)}"
    why = explain(log)
    if why is None or why not in told:
        _show(log, told)
    # They are there also where Ray, and with it the dashboard, ends now.
    return _not_up(
        name, why or f"its replicas' logs are in {serve_logs.folder()} of the machine where each of them ran"
    )


def _not_up(application: str, why: str) -> InfraError:
    return InfraError(f"application {application} did not come up: {why}")


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
