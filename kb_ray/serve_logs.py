"""What replicas of Serve logged lately, from every node: where a model that does not come up says why.

Serve's own message names the replica that failed, not the cause: that stands in the output of a process of vLLM's, in
the file of the replica's worker, on the node where it ran. Reads files, and of no process but those that are asked for:
others use the cluster too. Does not know what a message means.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

_FILES, _BYTES = 100, 20_000
_HEAD_BYTES = 65_536
"""Of a worker's log, where Ray writes what it is: after what it did for the same job before."""
_WAIT_S = 20.0

Replicas = Collection[tuple[str, str]]
"""Application and deployment."""
Processes = Collection[tuple[int, str]]
"""Number and the address of the node."""
_Seen = TypeVar("_Seen")


def of_replicas(since: float, replicas: Replicas) -> dict[str, str]:
    """Ends of what replicas of these deployments wrote after `since` (seconds since 1970), by file.

    A node that does not answer in 20 seconds is left out.
    """
    return _from_nodes(since, dict.fromkeys(_nodes(), ((), replicas)))


def of_processes(since: float, processes: Processes) -> dict[str, str]:
    """As `of_replicas`, of these workers of Ray's only: what they wrote and what they started."""
    pids = {node: [pid for pid, ip in processes if ip == address] for node, address in _nodes().items()}
    return _from_nodes(since, {node: (known, ()) for node, known in pids.items() if known})


def _nodes() -> dict[str, str]:
    import ray

    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def _from_nodes(since: float, wanted: Mapping[str, tuple[Collection[int], Replicas]]) -> dict[str, str]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    read = ray.remote(num_cpus=0, max_retries=0)(_of_this_node)
    asked = [
        read.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(since, *of)
        for node, of in wanted.items()
    ]
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_WAIT_S) if asked else ([], [])
    found = dict[str, str]()
    for answer in answered:
        try:
            found |= ray.get(answer)
        except RayError:
            continue
    return found


def folder() -> Path:
    """Where the processes of this node log, of the connected Ray; it stays there when Ray ends."""
    from ray._private import worker

    return Path(worker._global_node.get_logs_dir_path())


def _of_this_node(since: float, pids: Collection[int], replicas: Replicas) -> dict[str, str]:
    return ends(folder(), since, pids, replicas)


def ends(folder: Path, since: float, pids: Collection[int], replicas: Replicas) -> dict[str, str]:
    """Ends of logs in a session's folder that were written after `since`, by file and oldest first: of the workers with
    these numbers, and of replicas of these deployments."""
    of_pids = [path for pid in pids for path in folder.glob(f"worker-*-{pid}.*")]
    own = [f"serve/replica_{glob.escape(f'{application}_{deployment}')}_*" for application, deployment in replicas]
    logs = {path for pattern in own for path in folder.glob(pattern)}
    if replicas:
        marks = {f":actor_name:ServeReplica:{':'.join(replica)}".encode() for replica in replicas}
        heads = _seen(_head, _written(folder.glob("worker-*"), since))
        logs |= {path for path, head in heads.items() if marks & head}
    found = _seen(_end, _written(logs.union(of_pids), since)[-_FILES:])
    return {path.name: end for path, end in found.items()}


def _seen(look: Callable[[Path], _Seen], paths: Iterable[Path]) -> dict[Path, _Seen]:
    """What `look` finds at each path; without those that were rotated away since they were listed."""
    found = dict[Path, _Seen]()
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = look(path)
    return found


def _written(paths: Iterable[Path], since: float) -> list[Path]:
    written = sorted((time, path) for path, time in _seen(_changed, paths).items())
    return [path for time, path in written if time >= since]


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _head(path: Path) -> set[bytes]:
    with path.open("rb") as log:
        return set(log.read(_HEAD_BYTES).splitlines())


def _end(path: Path) -> str:
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _BYTES))
        return log.read(_BYTES).decode(errors="replace")
