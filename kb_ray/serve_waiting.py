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
_PROCESS = re.compile(r"\(pid=(?P<pid>\d+), ip=(?P<ip>[^,)\s]+)")
"""In it: where the replica's own process raised it, which one that is."""
_READINGS = 4
"""Of the logs of one failed start, half a minute apart: whoever failed writes no more, but a node may be slow."""
_FOR_GOOD = tuple(
    explain(said)
    for said in (
        "No available memory for the cache blocks",
        "is not divisible by weight quantization block",
        "expected target modules in {'q_proj'} but received ['conv1']",
        "Reasoning parser 'glm45x' not found",
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
                raise failed_starts.of_all(name, found[name])
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
    each time. Logs are read only once Serve says that a start has failed, and only where it cannot say why itself: of
    the process that it names, else of all replicas of that deployment, which may include one that is well.
    """

    def __init__(self, started: float) -> None:
        self._started = started
        # Of each deployment its own: Serve's words may be the same for several.
        self._seen: set[tuple[str, str, str]] = set()
        self._told: set[tuple[str, str, str]] = set()
        """Application, deployment and reason."""
        self._shown: set[str] = set()
        """Lines of logs."""
        self._read: set[tuple[str, str]] = set()
        """Log files and their lines."""
        self._unexplained: dict[tuple[str, str], tuple[str, int]] = {}
        """By application and deployment: what Serve says, and how often its logs are still to be read."""

    def look(self, application: str, found: ApplicationStatusOverview, *, again: bool) -> None:
        """Tells why starts failed that were not seen before. `again`: also of those whose reason was not found yet.

        InfraError where it is one for good.
        """
        for name, deployment in found.deployments.items():
            message, failed = deployment.message, _FAILED_START.match(deployment.message)
            # After the last try the application itself fails, and that is told with all there is.
            if failed and failed["left"] != "0" and (application, name, message) not in self._seen:
                self._seen.add((application, name, message))
                self._explain(application, name, message, _READINGS)
            elif again and (earlier := self._unexplained.get((application, name))):
                self._explain(application, name, *earlier)

    def _explain(self, application: str, deployment: str, message: str, readings: int) -> None:
        self._unexplained.pop((application, deployment), None)
        log, why, surely = message, explain(message), True
        if why is None and _CAUSE_ELSEWHERE.search(message):
            log, surely = self._unread(application, deployment, message)
            why = explain(log)
            if why is None and readings > 1:
                self._unexplained[application, deployment] = message, readings - 1
        # Its first line is Serve's own.
        said = telling(message.partition("\n")[2])
        reason = why or (said or [f"its logs are in {serve_logs.folder()} of the machine where it ran"])[-1]
        told = (application, deployment, reason) in self._told
        if why is not None and not told:
            self._show(log)
        if why in _FOR_GOOD and surely and _NEVER_STARTED.search(message):
            raise _not_up(application, reason)
        if told:
            return
        self._told.add((application, deployment, reason))
        print(f"a replica of {deployment} in {application} failed to start, Serve tries again: {reason}", flush=True)

    def _unread(self, application: str, deployment: str, message: str) -> tuple[str, bool]:
        """Telling lines of the logs that no earlier failure was explained with: it need not have been for that.
        And whether they are surely those of the replica that failed."""
        if processes := _processes(message):
            found = serve_logs.of_processes(self._started, processes)
        else:
            found = serve_logs.of_replicas(self._started, [(application, deployment)])
        lines = [(file, line) for file, text in found.items() for line in telling(text, _LINES)]
        new = [one for one in lines if one not in self._read]
        self._read.update(new)
        return "\n".join(line for _, line in new), bool(processes)

    def _show(self, log: str) -> None:
        """Shows the lines of a log that tell why, without those shown before."""
        for line in telling(log):
            if line not in self._shown:
                print(f"log: {line}", file=sys.stderr)
                self._shown.add(line)

    def of_all(self, application: str, found: ApplicationStatusOverview) -> InfraError:
        """Says why an application did not come up, after the lines of its logs that tell it and were not shown yet."""
        said = " ".join([found.message, *(deployment.message for deployment in found.deployments.values())])
        logs = serve_logs.of_replicas(self._started, [(application, name) for name in found.deployments])
        log = "\n".join([said, *logs.values()])
        why = explain(said) or explain(log)
        if why is None or all((application, name, why) not in self._told for name in found.deployments):
            self._show(log)
        # They are there also where Ray, and with it the dashboard, ends now.
        return _not_up(
            application, why or f"its replicas' logs are in {serve_logs.folder()} of the machine where each of them ran"
        )


def _processes(message: str) -> list[tuple[int, str]]:
    return [(int(found["pid"]), found["ip"]) for found in _PROCESS.finditer(message)]


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
