"""Whether a flagged task is waited for: by the last start that was asked for it, and by no other."""

from __future__ import annotations

import pytest

from kb_ray.traces.left_out import left_out
from kb_ray.traces.plans import Pairs
from kb_ray.traces.shards import Shard
from kb_ray.traces.starts import Start

A, B = ("a", 0), ("b", 0)
PLANS: dict[str, Pairs] = {"both": frozenset({A, B}), "a": frozenset({A}), "b": frozenset({B})}


def start(plan: str | None, *flagged: str, shard: str | None = None) -> Start:
    return Start(
        run_id="r", host="h", pid=1, began_at="", seen_at="", every_s=1.0, planned=2, earlier=0, plan=plan,
        left_out=flagged, shard=shard,
    )  # fmt: skip


OWN = next(f"{n}/2" for n in (1, 2) if Shard.of(f"{n}/2").holds(*A))
OTHER = "1/2" if OWN == "2/2" else "2/2"


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ([], set()),
        ([start("both", "a")], {A}),
        ([start("both", "a"), start("both")], set()),
        ([start("both", "a"), start("both"), start("both", "a", "b")], {A, B}),
        ([start("both", "a"), start("b")], {A}),
        ([start("both", "a"), start("a")], set()),
        ([start("both", "a"), start("both", shard=OWN)], set()),
        ([start("both", "a"), start("both", shard=OTHER)], {A}),
        ([start("both", "a", shard=OTHER)], set()),
        # Whose plan is gone says nothing of what it was asked for, but of what it left out.
        ([start("gone", "a")], {A}),
        ([start("both", "a"), start("gone")], {A}),
        ([start(None, "nobody's")], set()),
    ],
)
def test_the_last_word_counts(starts: list[Start], found: set[tuple[str, int]]) -> None:
    assert left_out(starts, PLANS) == found
