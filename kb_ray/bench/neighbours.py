"""Who else uses GPUs of the nodes on which a pool times kernels, and the mark that such verdicts get (pure).

Another GPU's work takes power, PCIe and host CPUs from the one that is timed. Both sides of a verdict are timed in
turn under it, so its speedup may still be right: it is marked, and keeps its trust where nothing else speaks
against it. Who works on the very GPU is seen by the judge. Does not know how a node is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kb_ray.records import Record, Verdict

FLAG = "shared_node"
IDLE_BYTES = 2 << 30
"""Memory of a GPU below which nobody is taken to use it: what drivers and monitors hold."""


class GpuUse(Record):
    """What a worker says of the GPUs of its machine."""

    node: str | None
    """Ray's id of the node."""
    host: str
    own: str | None
    """UUID of the GPU that it verifies on."""
    used: dict[str, int]
    """Bytes in use by UUID, of every GPU that it can see."""


class Neighbours:
    """What was seen at the last looks, by node. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        """When somebody was seen there last."""
        self._cleared: dict[str, float] = {}
        """When it was first looked at since, and nobody was there."""
        self._held: set[str] = set()

    def look(self, uses: Sequence[GpuUse], held: Mapping[str, float], now: float) -> list[str]:
        """Takes note of who is there now, and says it, a line for each shared node.

        `uses`: one of each worker of the pool that answers. `held`: GPUs that Ray has given away, by node.
        """
        lines, held_now = [], set[str]()
        for node in sorted({use.node for use in uses if use.node is not None}):
            ours = [use for use in uses if use.node == node]
            busy = _others_in_use(ours)
            if held.get(node, 0.0) > len(ours):
                held_now.add(node)
            # A worker of ours holds its GPU before it can say so: only the second look in a row counts.
            if not busy and node not in held_now & self._held:
                self._cleared.setdefault(node, now)
            else:
                self._seen[node] = now
                self._cleared.pop(node, None)
                lines.append(
                    f"others use GPUs of {ours[0].host}: its timed verdicts carry the flag {FLAG}; keep nodes for "
                    "evaluation with the label kb-pool=bench"
                )
        self._held = held_now
        return lines

    def knows(self, node: str) -> bool:
        """Whether it was looked at."""
        return node in self._seen or node in self._cleared

    def mark(self, verdict: Verdict, node: str | None, began: float) -> Verdict:
        """The verdict, marked where it was timed and others were on its node at the last look before `began`, or at one
        since."""
        seen, cleared = self._seen.get(node or ""), self._cleared.get(node or "")
        if not verdict.timed or seen is None or (cleared is not None and seen < cleared <= began):
            return verdict
        flags = tuple(sorted({*verdict.evidence.flags, FLAG}))
        return verdict.model_copy(update={"evidence": verdict.evidence.model_copy(update={"flags": flags})})


def held_by_node(nodes: Sequence[Mapping[str, Any]], free: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """GPUs that Ray has given away, by node, from `ray.nodes()` and what each node has free."""
    return {
        node["NodeID"]: node["Resources"].get("GPU", 0.0) - free[node["NodeID"]].get("GPU", 0.0)
        for node in nodes
        if node.get("Alive") and node["NodeID"] in free
    }


def _others_in_use(ours: Sequence[GpuUse]) -> bool:
    """Whether a GPU of the node is in use that is none of the pool's; nobody can tell where the own are not known."""
    own = {use.own for use in ours}
    used = {uuid for use in ours for uuid, size in use.used.items() if size > IDLE_BYTES}
    return None not in own and bool(used - own)
