"""From a surveyed store to the page: reads it once for the numbers and once for the episodes shown whole.

Where the texts of all drawn episodes would make the page too large, it takes as many as fit and the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kb_ray.reporting.content import content, episode_index
from kb_ray.reporting.gathering import Gathered, gather, read_again
from kb_ray.reporting.packing import pack
from kb_ray.reporting.page import page
from kb_ray.reporting.sampling import draw
from kb_ray.reporting.viewing import shown
from kb_ray.score.summary import Summary
from kb_ray.traces.reading import Survey

EPISODES_SHOWN = 500
_TEXT_BYTES = 12 * 1024**2
"""Packed texts at most: with numbers and libraries the page stays under 20 MB."""


@dataclass(frozen=True)
class Report:
    """A page, and the numbers in it."""

    html: str
    content: dict[str, Any]
    episodes: int
    shown: int


def make_report(
    found: Survey,
    *,
    episodes: int = EPISODES_SHOWN,
    seed: int = 0,
    live: str | None = None,
    gpu_hour_price: float | None = None,
    summary: Summary | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """The page of a store. `episodes` of it are drawn by `seed` to be shown whole. StoreError as readers do.

    With `live`, the mark of the store, the page asks its server for a newer one. `summary`: its metrics, where they
    are at hand. `notes` stand at the top of the page.
    """
    gathered = gather(found)
    chosen = draw(gathered.outcomes, episodes, seed)
    chunks, index = _fitting(_packed(found, gathered, chosen), chosen, gathered)
    told = content(gathered, summary=summary) | {
        "store": found.store.uri,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "superseded": found.superseded,
        "notes": list(notes),
        "damaged": [{"key": file.key, "reason": file.reason} for file in found.damaged],
        "index": index,
        "seed": seed,
        "gpu_hour_price": gpu_hour_price,
        "live": live,
    }
    html = page(f"kb_ray report: {found.store.uri}", told, chunks, live=live is not None)
    return Report(html, told, len(gathered.outcomes), len(index))


def _packed(found: Survey, gathered: Gathered, chosen: Sequence[int]) -> dict[int, str]:
    """Each chosen episode packed by itself, by its index. Packed they are small enough to be held together."""
    return {
        index: pack(shown(episode))
        for index, episode in zip(sorted(chosen), read_again(found, gathered, chosen), strict=True)
    }


def _fitting(
    packed: dict[int, str], chosen: Sequence[int], gathered: Gathered
) -> tuple[list[str], list[dict[str, Any]]]:
    """The texts in the order of the draw, as many as fit, and the list of those episodes.

    An episode that would not fit into an empty page is left out; it keeps no other from being shown.
    """
    chunks, index = list[str](), list[dict[str, Any]]()
    room = _TEXT_BYTES
    for at in chosen:
        if len(packed[at]) > _TEXT_BYTES:
            continue
        room -= len(packed[at])
        if room < 0:
            break
        index.append(episode_index(gathered.outcomes[at], len(chunks)))
        chunks.append(packed[at])
    return chunks, index
