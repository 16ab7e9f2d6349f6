"""Which kernel files may be shown: those with a kernel of the language they claim, and nothing that only looks so."""

from __future__ import annotations

import time

import pytest

from kb_ray.retrieve.checking import unfit

HEAD = "import triton\nimport triton.language as tl\n"
TRITON = [
    HEAD + "@triton.jit\ndef k(x):\n    pass\n",
    HEAD + "def k(x):\n    pass\n\n\nk = triton.jit(k)\n",
    HEAD + "@triton.autotune([], [])\n@triton.jit(do_not_specialize=['n'])\ndef k(x):\n    pass\n",
    "\ufeff" + HEAD + "@triton.jit\ndef k(x):\n    pass\n",
    "from triton import jit as compiled\n@compiled\ndef k(x):\n    pass\n",
    "import triton as t\n@t.jit\ndef k(x):\n    pass\n",
    "from triton.experimental import gluon\n@gluon.jit\ndef k(x):\n    pass\n",
]
NOT_TRITON = [
    "import torch\n@torch.jit.script\ndef k(x):\n    pass\n",
    "import numba\n@numba.njit\ndef k(x):\n    pass\n",
    "from numba import jit\n@jit\ndef k(x):\n    pass\n",
    HEAD + "@rejit\ndef k(x):\n    pass\n",
    HEAD + "def k(x):\n    pass\n\n\nmade = triton.jit(other)\n",
    HEAD + "# @triton.jit\ndef k(x):\n    pass\n",
]
CUDA = [
    "__global__ void k(float* x) { x[0] = 1.0f; }",
    "void __global__ k(int a) {}",
    "static __global__ void __launch_bounds__(256) k(int a, float (*f)(int)) { }",
    "template <typename T>\n__global__ __launch_bounds__(256, 2) void\nk(\n    const T* __restrict__ x)\n{\n}\n",
    'extern "C" __global__ void k() {}',
    "__global__ void k(std::array<int, (((1)))> a) {}",
    "__global__ std::enable_if_t<true, void> k(int a) {}",
    "__global__ void ns::k(int a = int{}) {}",
    "__global__ void k() { /* } */ char c = '}'; char d = '\\''; }",
    "__global__ __attribute__((used)) void k(int a) {}",
    "template <>\ninline __global__ void k<float, 3>(int a) {}",
    "__global__ void k(int a);\n__global__ void k(int a) { }",
    "#ifdef WIDE\n__global__ void k(int a) {\n#else\n__global__ void k(float a) {\n#endif\n}\n",
    "#if A\nvoid f() {\n#elif B\nvoid f(int) {\n#else\nvoid f(float) {\n#endif\n}\n__global__ void k() {}",
    'const char* s = R"(\n } ) " \n)";\n__global__ void k() {}',
    "#define OPEN {\n#define TWO \\\n  ((\n__global__ void k() { int x = 1'000; }",
]
NOT_CUDA = [
    "// __global__ void k() {}\nint x;",
    "int x; /* __global__ void k() {} */ void f() {}",
    'const char* s = "__global__ void k() {}";',
    "__global__ is what a kernel begins with",
    "__global__ int y;",
    "__global__ void k(int a);",
    "__global__ x; void bar() {}",
    "__global__ void",
]


@pytest.mark.parametrize("code", TRITON)
def test_files_with_a_triton_kernel_are_fit(code: str) -> None:
    assert unfit(code, "triton") is None


@pytest.mark.parametrize("code", NOT_TRITON)
def test_other_compilers_and_like_names_are_no_triton(code: str) -> None:
    assert unfit(code, "triton") == "no Triton kernel in it"


@pytest.mark.parametrize("code", CUDA)
def test_files_with_a_cuda_kernel_are_fit(code: str) -> None:
    assert unfit(code, "cuda") is None


@pytest.mark.parametrize("code", NOT_CUDA)
def test_a_mark_without_a_kernel_is_no_cuda(code: str) -> None:
    assert unfit(code, "cuda") == "no CUDA kernel in it"


SIZE = 60_000


def filled(unit: str) -> str:
    return unit * (SIZE // len(unit))


LONG = [
    filled('R"'),
    filled('R"('),
    filled("/* "),
    filled('"\\"'),
    '"' + filled('\\"'),
    "'" + filled("\\'"),
    filled("//"),
    filled("void ") + "__global__",
    filled("__global__ "),
    filled("__global__ void "),
    filled("#if A\n"),
    filled("#if A\n") + filled("x\n"),
    "__global__ void k" + filled("<"),
    filled("a{"),
    filled("(a{"),
    filled("void k() {"),
    "".join(f'R"a{n}(' for n in range(SIZE // 8)),
    "__global__ " + "word " * 3000,
    "__global__ void" + " x" * 3000 + "(" * 3000,
    "void " + "a " * 5000 + "__global__",
]


@pytest.mark.parametrize("code", LONG)
def test_long_nonsense_is_refused_in_little_time(code: str) -> None:
    began = time.process_time()
    assert unfit(code, "cuda") == "no CUDA kernel in it"
    # Of the processor, and a hundred times what it takes: no load makes it longer, and what grows faster takes minutes.
    assert time.process_time() - began < 10.0


@pytest.mark.parametrize("count", [100, 300, 800, 950, 3000])
def test_long_chains_of_calls_are_no_traceback(count: int) -> None:
    assert unfit(HEAD + "def k(x):\n    pass\n\n\nk" + "(k)" * count + "\n", "triton") is not None
