"""Product of two matrices whose sizes are no multiples of a usual tile."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(96, 80), torch.randn(80, 72)]


def get_init_inputs():
    return []
