"""When a node counts as shared, and which verdicts are marked for it."""

from __future__ import annotations

import pytest

from kb_ray.bench.neighbours import FLAG, IDLE_BYTES, GpuUse, Neighbours, held_by_node
from kb_ray.records import Evidence, Stage, Status, Verdict

BUSY, IDLE = 40 * IDLE_BYTES, IDLE_BYTES // 4
TIMED = Verdict.of(
    Status.OK, Stage.TIMING, speedup=2.0, trusted=True, verifier_version="1", evidence=Evidence(flags=("shared",))
)


def _use(own: str | None, node: str = "n", **used: int) -> GpuUse:
    return GpuUse(node=node, host=f"host-{node}", own=own, used=used)


@pytest.mark.parametrize(
    ("uses", "shared"),
    [
        ([], False),
        ([_use("a", a=BUSY, b=IDLE)], False),
        ([_use("a", a=BUSY, b=BUSY)], True),
        ([_use("a", a=BUSY, b=BUSY), _use("b", a=BUSY, b=BUSY)], False),
        ([_use("a", a=BUSY, b=BUSY, c=BUSY), _use("b", a=BUSY, b=BUSY, c=BUSY)], True),
        ([_use("a", "n", a=BUSY), _use("b", "m", b=BUSY)], False),
        ([_use(None, a=BUSY)], False),
        ([_use("a")], False),
    ],
)
def test_a_node_is_shared_where_a_gpu_is_in_use_that_is_none_of_ours(uses: list[GpuUse], shared: bool) -> None:
    assert bool(Neighbours().look(uses, {}, 0.0)) is shared


def test_gpus_given_away_by_ray_count_at_the_second_look_in_a_row() -> None:
    neighbours = Neighbours()
    held = [neighbours.look([_use("a")], {"n": n}, now) for now, n in enumerate([1.0, 2.0, 1.0, 2.0, 2.0])]
    assert [bool(lines) for lines in held] == [False, False, False, False, True]
    assert "host-n" in held[-1][0]


@pytest.mark.parametrize(
    ("node", "began", "marked"),
    [("n", 90.0, True), ("n", 100.0, True), ("n", 139.0, True), ("n", 141.0, False), ("m", 100.0, False),
     (None, 100.0, False)],
    ids=["seen since it began", "seen when it began", "nobody looked since", "nobody was there then", "elsewhere",
         "nobody knows where"],
)  # fmt: skip
def test_what_was_timed_beside_others_is_marked_and_keeps_its_trust(
    node: str | None, began: float, marked: bool
) -> None:
    neighbours = Neighbours()
    shared = [_use("a", a=BUSY, b=BUSY), _use("c", "m", c=BUSY)]
    alone = [_use("a", a=BUSY, b=IDLE), _use("c", "m", c=BUSY)]
    for now, uses in ((80.0, alone), (100.0, shared), (140.0, alone), (150.0, alone)):
        neighbours.look(uses, {}, now)
    verdict = neighbours.mark(TIMED, node, began)
    assert verdict.evidence.flags == (("shared", FLAG) if marked else ("shared",))
    assert verdict.trusted


def test_a_node_is_known_once_it_was_looked_at() -> None:
    neighbours = Neighbours()
    assert not neighbours.knows("n")
    neighbours.look([_use("a", a=BUSY)], {}, 0.0)
    assert (neighbours.knows("n"), neighbours.knows("m")) == (True, False)


def test_what_was_not_timed_is_not_marked() -> None:
    neighbours = Neighbours()
    neighbours.look([_use("a", a=BUSY, b=BUSY)], {}, 0.0)
    wrong = Verdict.of(Status.MISMATCH, Stage.FULL, verifier_version="1")
    assert neighbours.mark(wrong, "n", 0.0) == wrong


def test_a_node_that_has_left_holds_nothing() -> None:
    nodes = [
        {"NodeID": "n", "Alive": True, "Resources": {"GPU": 8.0}},
        {"NodeID": "cpu", "Alive": True, "Resources": {"CPU": 8.0}},
        {"NodeID": "gone", "Alive": False, "Resources": {}},
        {"NodeID": "new", "Alive": True, "Resources": {"GPU": 8.0}},
    ]
    assert held_by_node(nodes, {"n": {"GPU": 3.0}, "cpu": {}, "gone": {}}) == {"n": 5.0, "cpu": 0.0}
