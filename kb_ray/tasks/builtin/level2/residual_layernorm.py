"""Layer normalisation of a sum; the sum itself is returned too."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(features))
        self.bias = nn.Parameter(0.2 * torch.randn(features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return F.layer_norm(total, total.shape[-1:], self.weight, self.bias, 1e-5), total


def get_inputs():
    return [torch.randn(40, 384), torch.randn(40, 384)]


def get_init_inputs():
    return [384]
