"""Transpose of a matrix times a constant given to the constructor."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.t() * self.scale).contiguous()


def get_inputs():
    return [torch.randn(120, 200)]


def get_init_inputs():
    return [0.75]
