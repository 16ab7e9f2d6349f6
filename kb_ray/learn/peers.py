"""Several processes that take each step together: who learns from which samples, and how their gradients add up.

Every process is given all samples of a step and divides by what all of them are, so that the sum of what each finds in
its share is what one process would have found in all. Knows tensors, no model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Alone:
    """One process: everything is its share, and nothing is to be added."""

    rank, world = 0, 1

    def share(self, count: int) -> range:
        """Places of those among `count` samples that this process learns from."""
        return range(self.rank, count, self.world)

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor, in place, the sum of all processes' ones."""


class Together(Alone):
    """One of the processes of torch's default group, which must have been set up."""

    def __init__(self) -> None:
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def add(self, tensors: Sequence[Tensor]) -> None:
        """In one message for each type of number: adapters are many small tensors."""
        # In an order that is the same in every process, which that of a set is not.
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            own = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in own])
            torch.distributed.all_reduce(flat)
            for tensor, summed in zip(own, flat.split([tensor.numel() for tensor in own]), strict=True):
                tensor.copy_(summed.view_as(tensor))
