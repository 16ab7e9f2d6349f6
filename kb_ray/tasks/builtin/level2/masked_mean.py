"""Mean over the valid steps of padded sequences; lengths are integers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[1], device=x.device)
        valid = (steps[None, :] < lengths[:, None]).to(x.dtype)
        return (x * valid[:, :, None]).sum(dim=1) / lengths[:, None].to(x.dtype)


def get_inputs():
    return [torch.randn(16, 24, 40), torch.randint(1, 25, (16,))]


def get_init_inputs():
    return []
