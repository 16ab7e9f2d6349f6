"""Plans of changes are made once for a task, and anew where its inputs have another shape."""

from __future__ import annotations

import torch

from kb_ray.bench.child import references
from kb_ray.bench.child.cases import Loaded
from tests.fixtures_bench import ADD_RELU


def test_inputs_of_the_same_shapes_are_looked_at_once() -> None:
    loaded = Loaded("key", ADD_RELU, 0)
    first = references._planned(loaded, [torch.rand(400)])
    assert references._planned(loaded, [torch.rand(400)]) is first
    shorter = references._planned(loaded, [torch.rand(40)])
    assert max(max(pair) for pair in shorter[0].pairs) < 40  # type: ignore[union-attr]  # nothing there is in order
    assert references._planned(loaded, [torch.rand(40)]) is shorter
    assert references._planned(loaded, [torch.rand(40).double()]) is not shorter
