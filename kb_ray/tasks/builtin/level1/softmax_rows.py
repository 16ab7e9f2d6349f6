"""Softmax over the last dimension of a matrix whose rows are not a power of two long."""

import torch

input_shapes = {
    "x": {"shape": [46, 700], "dtype": "float32"},
}


def reference_impl(x):
    return torch.softmax(x, dim=-1)
