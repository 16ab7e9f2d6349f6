"""What processes send each other comes in the same order everywhere, and every sample is learned from once."""

from __future__ import annotations

import pytest
import torch

from kb_ray.learn.peers import Alone, Together


def test_tensors_are_sent_by_kind_in_the_order_in_which_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.dtype] = []

    def all_reduce(flat: torch.Tensor) -> None:
        sent.append(flat.dtype)
        flat *= 2

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    kinds = [torch.float64, torch.bfloat16, torch.float32, torch.float16, torch.bfloat16]
    given = [torch.full((n + 1, 2), float(n), dtype=kind) for n, kind in enumerate(kinds)]
    together = Together()
    together.add(given)
    assert sent == [torch.float64, torch.bfloat16, torch.float32, torch.float16]
    assert [tensor.unique().tolist() for tensor in given] == [[0.0], [2.0], [4.0], [6.0], [8.0]]
    assert list(together.share(8)) == [1, 4, 7]


def test_alone_everything_is_its_share() -> None:
    assert list(Alone().share(3)) == [0, 1, 2]
