"""Two integer matrices mixed with shifts, masks and a product; wraps around like int32 does."""

import torch

input_shapes = {
    "x": {"shape": [120, 150], "dtype": "int32"},
    "y": {"shape": [120, 150], "dtype": "int32"},
}


def reference_impl(x, y):
    return (x ^ (y << 1)) + (((x & 15) * y) >> 2)
