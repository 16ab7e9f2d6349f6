"""Two linear layers with a ReLU between them and a residual connection."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def get_inputs():
    return [torch.randn(40, 48)]


def get_init_inputs():
    return [48, 96]
