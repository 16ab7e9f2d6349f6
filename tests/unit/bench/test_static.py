"""Static rules: what is rejected and why, and above all what is not."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.forbidden import PATHS
from kb_ray.bench.static import check_static
from kb_ray.records import Status
from tests.unit.bench.static_pieces import KERNEL, finding


def test_an_honest_kernel_passes() -> None:
    assert check_static(KERNEL) is None


@pytest.mark.parametrize(
    "more",
    [
        '"""try: except: pass; eval(x); torch.compile; import gc; upstream; /proc/self/mem"""',
        "# torch.compile(model), subprocess, eval('1'), gc.get_objects()",
        "NOTE = 'uses torch.compile and eval() nowhere; see /proc/ too'",
        "try:\n    import triton.language.extra.libdevice as libdevice\nexcept ImportError:\n    pass",
        "stream = torch.cuda.current_stream()",
        "upstream, downstream = 1, 2",
        "import os\nBLOCK = int(os.environ.get('BLOCK', '128'))\nos.environ['X'] = '1'",
        "driver = triton.runtime.driver.active",
        "from triton.runtime import driver\nUTILS = driver.active.utils",
        "import triton.testing\nMS = triton.testing.do_bench",
        "import math, typing, functools, dataclasses, contextlib, warnings, logging, itertools, enum, operator",
        "import numpy as np\nfrom einops import rearrange",
        "import re\nPATTERN = re.compile('x')",
        "from re import compile\nPATTERN = compile('x')",
        "compiled = triton.compile",
        "class M(torch.nn.Module):\n    def forward(self, x):\n        return self.eval().layer.eval()(x)",
        "def compile(kernel):\n    return kernel\nK = compile(add_kernel)",
        "def run(reference, gc, socket):\n    return reference.x + gc.collect + socket.y",
        "for reference in range(3):\n    print(reference)",
        "try:\n    pass\nexcept Exception as http:\n    print(http)",
        "with torch.no_grad() as cuda:\n    print(cuda)",
        "while True:\n    break",
        "x = 7 // 2  # then anything",
        "import inspect\nSOURCE = inspect.getsource\nSIGNATURE = inspect.signature(triton_kernel_wrapper)",
        "import sys\nif 'torch' in sys.modules and sys.version_info > (3, 8):\n    pass",
        "import os, signal\ndef die():\n    os._exit(0)",
        "from torch import *\nfrom torch import cuda\nSM = cuda.get_device_properties",
        "dtype = getattr(tl, 'float16')\nname = getattr(torch, input.__name__, None)",
        "@torch.library.custom_op('a::b', mutates_args=())\ndef op(x: torch.Tensor) -> torch.Tensor:\n    return x",
        "d = {'__code__x': 1, 'exec': 2}\nd['exec'] += 1",
        "def compile(x): return x\ndef f(): return compile(1)",
        "class C:\n    def eval(self): return 1\nC().eval()",
        "def f(exec):\n    def g(): return exec(1)\n    return g",
        "eval = lambda x: x\nprint([eval(x) for x in range(3)])",
        "from torch._inductor.runtime.triton_helpers import libdevice\nf = libdevice.tanh",
        "from torch._inductor.runtime import triton_helpers\nf = triton_helpers.libdevice.tanh",
        "import torch._inductor.runtime.triton_helpers\nf = torch._inductor.runtime.triton_helpers.libdevice.tanh",
        "import torch.utils.checkpoint\nfrom torch.utils import _pytree",
        "import threading\nlock = threading.Lock()",
    ],
)
def test_look_alikes_of_forbidden_things_pass_B28(more: str) -> None:
    assert check_static(KERNEL + "\n" + more + "\n") is None


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("model = torch.compile(model)", "torch.compile"),
        ("@torch.compile\ndef f(x): return x", "torch.compile"),
        ("@torch.compile(mode='max-autotune')\ndef f(x): return x", "torch.compile"),
        ("t = torch\nf = t.compile", "torch.compile"),
        ("from torch import compile as c", "torch.compile"),
        ("f = getattr(torch, 'compile')", "torch.compile"),
        ("f = getattr(torch, 'comp' + 'ile')(x)", "torch.compile"),
        ("f = getattr(torch, f'compile')", "torch.compile"),
        ("f = vars(torch)['compile']", "torch.compile"),
        ("f = torch.__dict__['compile']", "torch.compile"),
        ("(t := torch).compile(f)", "torch.compile"),
        ("a, b = torch, tl\nb, c = a.compile, 1", "torch.compile"),
        ("b = a\na = torch\nb.compile", "torch.compile"),
        ("def f(compiler=torch.compile): return compiler", "torch.compile"),
        ("import torch._inductor.config", "torch._inductor"),
        ("torch._dynamo.reset()", "torch._dynamo"),
        ("import torch._inductor.runtime.triton_helpers as h\nf = torch._inductor.compile", "torch._inductor"),
        ("from torch._inductor.runtime import triton_heuristics", "torch._inductor"),
        ("from torch._inductor import *", "torch._inductor"),
        ("from torch.utils.cpp_extension import load_inline", "torch.utils.cpp_extension"),
        ("from torch.utils import cpp_extension as c", "torch.utils.cpp_extension"),
        ("import torch.utils as u\nu.cpp_extension.load()", "torch.utils.cpp_extension"),
        ("from torch.utils._python_dispatch import TorchDispatchMode", "torch.utils._python_dispatch"),
        ("from triton.runtime import interpreter", "triton.runtime.interpreter"),
        ("triton.runtime.interpreter.GridExecutor", "triton.runtime.interpreter"),
        ("import gc\ngc.get_objects()", "gc"),
        ("def f():\n    import gc as g\n    return g", "gc"),
        ("try:\n    from ctypes import CDLL\nexcept ImportError:\n    pass", "ctypes"),
        ("import sys\nsys._getframe(1)", "sys._getframe"),
        ("from sys import _getframe as frame", "sys._getframe"),
        ("import sys as s\ns.settrace(None)", "sys.settrace"),
        ("import sys\nsys.modules['gc']", "gc"),
        ("import inspect\ninspect.currentframe()", "inspect.currentframe"),
        ("def f(e): return e.__traceback__.tb_frame", "tb_frame"),
        ("def f(g): return g.gi_frame.f_back", "f_back"),
        ("x = triton_kernel_wrapper.__globals__", "__globals__"),
        ("x = getattr(triton_kernel_wrapper, '__glo' + 'bals__')", "__globals__"),
        ("x = globals()['__builtins__']", "__builtins__"),
        ("x = ().__class__.__base__.__subclasses__()", "__subclasses__"),
        ("exec('x = 1')", "exec"),
        ("e = eval\ne('1')", "eval"),
        ("compile('1', 'f', 'eval')", "compile"),
        ("__import__('os').system('true')", "__import__"),
        ("import builtins\nbuiltins.exec('')", "builtins.exec"),
        ("class C:\n    def exec(self): pass\nexec('x = 1')", "exec"),
        ("def f(eval): return eval\ndef g(): return eval('1')", "eval"),
        ("__import__ = __import__\n__import__('os')", "__import__"),
        ("def f():\n    global compile\n    return compile('1', '', 'eval')\nlambda compile: compile", "compile"),
        ("import importlib\nimportlib.import_module('x')", "importlib"),
        ("from importlib import import_module", "importlib"),
        ("import pickle", "pickle"),
        ("import marshal as m", "marshal"),
        ("import subprocess", "subprocess"),
        ("import os\nos.system('ls')", "os.system"),
        ("from os import fork", "os.fork"),
        ("import os\nrun = os.execve", "os.execve"),
        ("import socket", "socket"),
        ("from urllib.request import urlopen", "urllib"),
        ("import requests", "requests"),
        ("import cupy as cp", "cupy"),
        ("from numba import cuda", "numba"),
        ("from flash_attn import flash_attn_func", "flash_attn"),
        ("import liger_kernel.ops", "liger_kernel"),
        ("from fla.ops import chunk", "fla"),
        ("import kb_ray.records", "kb_ray"),
        ("from kb_ray import records", "kb_ray"),
        ("from reference import Model", "reference"),
        ("import reference", "reference"),
        ("text = open('/proc/self/maps').read()", "/proc/"),
        ("import os\ntext = open(f'/proc/{os.getppid()}/environ')", "/proc/"),
    ],
)  # fmt: skip
def test_what_cannot_be_honest_is_rejected_under_any_alias_A12_A13_A14_A73(more: str, named: str) -> None:
    code = KERNEL + "\n" + more + "\n"
    error = finding(code, Status.FORBIDDEN).error
    assert error.message.startswith(f"`{named}` is not allowed (line {error.line}): ")
    assert error.line is not None
    assert error.line > KERNEL.count("\n") + 1
    assert error.detail == f"{error.line} | {code.splitlines()[error.line - 1]}"


@pytest.mark.parametrize("path", sorted(path for path in PATHS if "." in path or path.isalpha()))
def test_every_forbidden_path_is_seen_where_it_is_used(path: str) -> None:
    root = path.split(".")[0]
    use = f"import {root}\nvalue = {path}\n" if root not in ("exec", "eval", "compile") else f"value = {path}\n"
    finding(KERNEL + use, Status.FORBIDDEN)


def test_the_first_forbidden_line_is_the_one_told() -> None:
    error = finding(KERNEL + "\nimport socket\nimport gc\n", Status.FORBIDDEN).error
    assert "`socket`" in error.message


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def f(:\n    pass", 1),
        ("x = 1\n  y = 2", 2),
        ("def f():\nreturn 1", 2),
        ("x = (1,\n", 1),
        ("return 1", 1),
        ("def f(a, a): pass", 1),
        ("x = “text”", 1),
        ("```python\nx = 1\n```", 1),
        ("x = 1\nnonlocal x", 2),
        ("\tx = 1\n        y = 2", 1),
    ],
)
def test_a_syntax_error_names_its_line_and_shows_it(code: str, line: int) -> None:
    error = finding(code, Status.SYNTAX_ERROR).error
    assert error.line == line
    assert f"(line {line})" in error.message
    assert error.detail.startswith(f"{line} | ")
    assert error.detail.splitlines()[0].removeprefix(f"{line} | ") == code.splitlines()[line - 1].expandtabs(1)


def test_the_caret_stands_under_the_fault() -> None:
    first, second = finding("x = 1 +* 2", Status.SYNTAX_ERROR).error.detail.splitlines()
    assert first[second.index("^")] == "*"


@pytest.mark.parametrize(
    "code", ["x = 1\0", "x = '\ud800'", "(" * 5000, "-" * 50_000 + "1", "x" + ".a" * 20_000, "[" * 150 + "]" * 150]
)
def test_absurd_sources_are_syntax_errors_and_never_exceptions(code: str) -> None:
    assert check_static(KERNEL + "\n" + code) is None or finding(KERNEL + "\n" + code, Status.SYNTAX_ERROR)


@given(st.text(max_size=80) | st.text("()[]{}:=.\n\t'\"\\@#x1 ", max_size=60))
@settings(deadline=None)
def test_no_text_makes_the_check_fail(code: str) -> None:
    for source in (code, KERNEL + code):
        found = check_static(source)
        assert found is None or found.error.message


def test_a_byte_order_mark_and_foreign_line_ends_do_not_matter_B23() -> None:
    assert check_static("\ufeff" + KERNEL.replace("\n", "\r\n")) is None


def test_syntax_comes_before_entry_point_before_jit_before_forbidden() -> None:
    assert "ModelNew" in finding("import gc", Status.NO_KERNEL).error.message
    assert "triton.jit" in finding("import gc\nModelNew = 1", Status.NO_KERNEL).error.message
    finding("import gc\nModelNew = ", Status.SYNTAX_ERROR)
    finding("", Status.NO_KERNEL)


def test_the_check_loads_neither_torch_nor_ray() -> None:
    check = "import sys, kb_ray.bench.static; sys.exit(bool({'torch', 'ray', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
