"""Which episodes are shown whole where not all can be: some of every kind, by a seeded draw.

Pure. Does not know what showing an episode costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kb_ray.score.outcomes import Outcome


def stratum(item: Outcome) -> str:
    """The kind of an episode: the status of its best turn, or why it has none."""
    best = item.best_answer
    return item.stop_reason if best is None else best.status


def draw(found: Sequence[Outcome], most: int, seed: int) -> tuple[int, ...]:
    """Indices of at most `most` episodes, one of each kind in turn, so that any beginning holds every kind.

    Within a kind the order is that of a hash of seed and episode id: the same store gives the same draw.
    """
    kinds: dict[str, list[int]] = {}
    for index, item in enumerate(found):
        kinds.setdefault(stratum(item), []).append(index)
    for members in kinds.values():
        members.sort(key=lambda index: _priority(seed, found[index].episode_id))
    ordered = [kinds[name] for name in sorted(kinds)]
    rounds = max(map(len, ordered), default=0)
    drawn: list[int] = []
    for at in range(rounds):
        drawn += [members[at] for members in ordered if at < len(members)]
        if len(drawn) >= most:
            break
    return tuple(drawn[:most])


def _priority(seed: int, episode_id: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{episode_id}".encode(), digest_size=8).digest()
