"""3x3 convolution, batch normalisation with stored statistics, ReLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(channels_out))
        self.bias = nn.Parameter(0.2 * torch.randn(channels_out))
        self.register_buffer("mean", 0.1 * torch.randn(channels_out))
        self.register_buffer("var", 0.5 + torch.rand(channels_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.batch_norm(self.conv(x), self.mean, self.var, self.weight, self.bias, training=False)
        return torch.relu(y)


def get_inputs():
    return [torch.randn(2, 3, 24, 24)]


def get_init_inputs():
    return [3, 8]
