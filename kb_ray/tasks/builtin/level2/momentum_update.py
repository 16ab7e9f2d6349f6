"""One step of SGD with momentum; parameters and velocity are updated in place."""

import torch

input_shapes = {
    "param": {"shape": [60, 200], "dtype": "float32"},
    "grad": {"shape": [60, 200], "dtype": "float32"},
    "velocity": {"shape": [60, 200], "dtype": "float32"},
}


def reference_impl(param, grad, velocity):
    velocity.mul_(0.9).add_(grad)
    param.sub_(0.1 * velocity)
    return param, velocity
