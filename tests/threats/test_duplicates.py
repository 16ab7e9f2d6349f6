"""A83: a known kernel in other clothes is recognised, and another kernel is not taken for it."""

from __future__ import annotations

import pytest

from kb_ray.likeness import likeness
from tests.fixtures_bench import KERNEL, changed
from tests.threats.pieces import COPY

CLOTHES = {
    "comments": "# mine\n" + KERNEL.replace("mask = offsets < n", "mask = offsets < n  # in bounds"),
    "a docstring": changed("def triton_kernel_wrapper(x, y):\n", 'def triton_kernel_wrapper(x, y):\n    """Mine."""\n'),
    "layout": KERNEL.replace("\n\n\n", "\n").replace(", ", ",  ").replace("x + y, 0.0", "(x + y),\n        0.0"),
    "names of variables": KERNEL.replace("offsets", "o").replace("mask", "inside").replace("out_ptr", "result"),
    "the kernel's name": KERNEL.replace("add_relu_kernel", "fused"),
    "the block's name": KERNEL.replace("BLOCK", "SIZE"),
    "the modules' names": KERNEL.replace("import triton.language as tl", "import triton.language as lang").replace(
        "tl.", "lang."
    ),
    "annotations": changed("(x, y):", "(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:"),
    "line ends and a byte order mark": "\ufeff" + KERNEL.replace("\n", "\r\n"),
    "quotes and parentheses": KERNEL.replace("return out", "return (out)"),
}
OTHERS = {
    "another operation": changed("x + y, 0.0", "x - y, 0.0"),
    "another constant": changed("0.0)", "0.5)"),
    "another block": changed("BLOCK=1024)", "BLOCK=512)"),
    "a mask less": changed("x_ptr + offsets, mask=mask", "x_ptr + offsets"),
    "operands turned round": changed("tl.load(x_ptr", "tl.load(y_ptr"),
    "another program": COPY,
    "no program": "def (",
}


@pytest.mark.parametrize("name", CLOTHES)
def test_a83_a_kernel_in_other_clothes_is_a_duplicate(name: str) -> None:
    assert CLOTHES[name] != KERNEL
    assert likeness(CLOTHES[name]) == likeness(KERNEL)


@pytest.mark.parametrize("name", OTHERS)
def test_a83_another_kernel_is_no_duplicate(name: str) -> None:
    assert likeness(OTHERS[name]) != likeness(KERNEL)
