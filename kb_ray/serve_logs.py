"""What the processes of a cluster logged lately, from every node: where a model that does not come up says why.

Serve's own message names the replica that failed, not the cause: that stands in the output of a process of vLLM's,
in a file on the node where it ran. Reads files; does not know what a message means.
"""

from __future__ import annotations

from pathlib import Path

_FILES, _BYTES = 12, 20_000
_WAIT_S = 20.0


def recent(since: float) -> str:
    """Ends of the logs that were written after `since` (seconds since 1970), of each node of the connected Ray.

    A node that does not answer in 20 seconds is left out.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    read = ray.remote(num_cpus=0, max_retries=0)(_of_this_node)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    asked = [
        read.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(since)
        for node in nodes
    ]
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_WAIT_S)
    found = []
    for answer in answered:
        try:
            found.append(ray.get(answer))
        except RayError as error:
            found.append(f"logs of a node cannot be read: {type(error).__name__}")
    return "\n".join(found)


def folder() -> Path:
    """Where the processes of this node log, of the connected Ray; it stays there when Ray ends."""
    from ray._private import worker

    return Path(worker._global_node.get_logs_dir_path())


def _of_this_node(since: float) -> str:
    return ends(folder(), since)


def ends(folder: Path, since: float) -> str:
    """Ends of the workers' and replicas' logs in a session's folder, oldest first."""
    files = [*folder.glob("worker-*"), *folder.glob("serve/replica_*")]
    written = sorted((path.stat().st_mtime, path) for path in files)
    late = [path for time, path in written if time >= since][-_FILES:]
    return "\n".join(path.read_bytes()[-_BYTES:].decode(errors="replace") for path in late)
