"""Rotary position embedding; cosines and sines are buffers of the module."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, length: int, features: int):
        super().__init__()
        frequencies = 1000.0 ** (-torch.arange(0, features, 2).float() / features)
        angles = torch.arange(length).float()[:, None] * frequencies[None, :]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * self.cos - second * self.sin, first * self.sin + second * self.cos], dim=-1)


def get_inputs():
    return [torch.randn(2, 4, 30, 32)]


def get_init_inputs():
    return [30, 32]
