"""Static rules on entry points and JIT functions: what a candidate must define, and every way it may."""

from __future__ import annotations

import pytest

from kb_ray.bench.static import check_static
from kb_ray.records import Status
from tests.unit.bench.static_pieces import KERNEL, finding

ENTRY = "def triton_kernel_wrapper(x, y):"


@pytest.mark.parametrize(
    "entry",
    [
        "class ModelNew(torch.nn.Module):\n    pass",
        "def build():\n    return 1\nModelNew = build()",
        "ModelNew: type = torch.nn.ReLU",
        "if True:\n    class ModelNew: pass\nelse:\n    pass",
        "if False:\n    pass\nelse:\n    def triton_kernel_wrapper(x): return x",
        "try:\n    import nothing\nexcept ImportError:\n    def triton_kernel_wrapper(x): return x",
        "with torch.no_grad():\n    triton_kernel_wrapper = print",
        "a, (triton_kernel_wrapper, b) = 1, (2, 3)",
        "from torch.nn import ReLU as ModelNew",
        "match 1:\n    case _:\n        ModelNew = 1",
    ],
)
def test_an_entry_point_may_be_bound_in_any_way_at_module_level(entry: str) -> None:
    assert check_static(KERNEL.replace(ENTRY, "def other(x, y):") + "\n" + entry + "\n") is None


@pytest.mark.parametrize(
    "entry",
    [
        "class Model(torch.nn.Module):\n    pass",
        "class Outer:\n    def triton_kernel_wrapper(self): pass\n    class ModelNew: pass",
        "def make():\n    class ModelNew: pass\n    ModelNew = 1",
        "# class ModelNew(nn.Module)",
        "CODE = 'class ModelNew: pass'",
        "print(ModelNew)",
        "x.ModelNew = 1",
    ],
)
def test_without_entry_point_at_module_level_there_is_no_kernel_A06(entry: str) -> None:
    error = finding(KERNEL.replace(ENTRY, "def other(x, y):") + "\n" + entry + "\n", Status.NO_KERNEL).error
    assert "ModelNew" in error.message
    assert "triton_kernel_wrapper" in error.message


def with_jit(imports: str, decorated: str) -> str:
    return f"import torch\n{imports}\n{decorated}\ndef triton_kernel_wrapper(x):\n    return x\n"


@pytest.mark.parametrize(
    ("imports", "decorated"),
    [
        ("import triton", "@triton.jit\ndef k(x): pass"),
        ("import triton", "@triton.jit(do_not_specialize=['x'])\ndef k(x): pass"),
        ("import triton as t", "@t.jit\ndef k(x): pass"),
        ("from triton import jit", "@jit\ndef k(x): pass"),
        ("from triton import jit as kernel", "@kernel\ndef k(x): pass"),
        ("from triton import *", "@jit\ndef k(x): pass"),
        ("from triton.runtime.jit import jit", "@jit\ndef k(x): pass"),
        ("import triton", "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef k(x): pass"),
        ("import triton", "@triton.heuristics({})\n@triton.autotune([], [])\n@triton.jit\ndef k(x): pass"),
        ("import triton", "def f(x): pass\nk = triton.jit(f)"),
        ("import triton", "jit = triton.jit\n@jit\ndef k(x): pass"),
        ("import triton, functools", "jit = functools.partial(triton.jit, debug=True)\n@jit\ndef k(x): pass"),
        ("import triton", "def make():\n    @triton.jit\n    def k(x): pass\n    return k"),
        ("import triton", "class K:\n    @staticmethod\n    @triton.jit\n    def k(x): pass"),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None", "@triton.jit\ndef k(x): pass"),
        ("from triton.experimental import gluon", "@gluon.jit\ndef k(x): pass"),
    ],
)
def test_a_jit_function_counts_however_it_is_made(imports: str, decorated: str) -> None:
    assert check_static(with_jit(imports, decorated)) is None


@pytest.mark.parametrize(
    ("imports", "decorated"),
    [
        ("import triton", "def k(x): pass"),
        ("import triton", "'''\n@triton.jit\ndef k(x): pass\n'''"),
        ("import triton", "# @triton.jit\ndef k(x): pass"),
        ("import triton", "@triton.autotune(configs=[], key=[])\ndef k(x): pass"),
        ("", "@torch.jit.script\ndef k(x): return x"),
        ("from torch import jit", "@jit.script\ndef k(x): return x"),
        ("from other import jit", "@jit\ndef k(x): return x"),
        ("", "def jit(f): return f\n@jit\ndef k(x): return x"),
    ],
)
def test_without_a_jit_function_there_is_no_kernel_A01_A06(imports: str, decorated: str) -> None:
    assert "@triton.jit" in finding(with_jit(imports, decorated), Status.NO_KERNEL).error.message
