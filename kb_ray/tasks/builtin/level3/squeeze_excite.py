"""Channels of an image weighted by a gate computed from their means."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels: int, reduced: int):
        super().__init__()
        self.squeeze = nn.Linear(channels, reduced)
        self.excite = nn.Linear(reduced, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = x.mean(dim=(2, 3))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(pooled))))
        return x * gate[:, :, None, None]


def get_inputs():
    return [torch.randn(4, 16, 12, 12)]


def get_init_inputs():
    return [16, 4]
