"""B20 to B23, B27 to B29, B48: files that look odd and are not: names, encodings, demos, words, threads.

All of them compute relu by the same kernel.
"""

from __future__ import annotations

from tests.threats.b_3_triton import LAUNCH, replaced
from tests.threats.honest import HEAD, MODEL, RELU, RELU_KERNEL, RELU_TASK, WRAPPER
from tests.threats.record import Honest

DEMO = """
if __name__ == "__main__":
    x = torch.randn(4, 4).cuda()
    assert torch.allclose(triton_kernel_wrapper(x), torch.relu(x))
    raise SystemExit("demo")
"""
SEVERAL = """
class Block(nn.Module):
    def forward(self, x):
        return run(x)

class Model(nn.Module):
    \"\"\"The original.\"\"\"
    def forward(self, x):
        return torch.relu(x)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return self.block(x)

def get_inputs():
    return [torch.randn(33, 65)]

def get_init_inputs():
    return []
"""
WORDS = '''
"""Upstream kernel. try: nothing is caught here. except: no. pass

```python
while True: pass
```
exec( eval( os.system( subprocess /proc/ torch.compile
"""
'''
LOOP = """
def grid_of(n):
    blocks = 1
    while True:
        if blocks * 1024 >= n:
            break
        blocks += 1
    return (blocks,)
"""


def named(old: str) -> str:
    """The relu file with its kernel called otherwise."""
    return RELU.replace("def kernel(", f"def {old}(").replace("kernel[", f"{old}[")


HONEST = (
    Honest("B20", "source read back", RELU + "\nimport inspect\nassert 'tl.store' in inspect.getsource(kernel.fn)\n",
           RELU_TASK, "both"),
    Honest("B20", "its own file read back", RELU + "\nassert 'triton.jit' in open(__file__).read()\n", RELU_TASK,
           "both"),
    Honest("B21", "a decorator with parentheses over several lines", replaced(
        ("@triton.jit", "@triton.jit(\n    do_not_specialize=[\n        'n',\n    ],\n)")), RELU_TASK, "both"),
    Honest("B21", "a signature over several lines, annotated", replaced(
        ("(x_ptr, out_ptr, n, BLOCK: tl.constexpr):",
         "(\n    x_ptr,  # (n,)\n    out_ptr,\n    n: int,\n    BLOCK: tl.constexpr = 1024,\n) -> None:"),
    ), RELU_TASK, "both"),
    Honest("B21", "annotations that are not evaluated", "from __future__ import annotations\n" + RELU, RELU_TASK,
           "both"),
    Honest("B22", "names that harnesses use", RELU + "\nsubmission = temp_module = solution = None\nreference = run\n"
           "candidate = 'candidate'\n", RELU_TASK, "both"),
    Honest("B22", "a kernel called as a library's", named("gemm"), RELU_TASK, "both"),
    Honest("B22", "a kernel whose name begins with _", named("_k"), RELU_TASK, "both"),
    Honest("B22", "a dataclass and an enum", replaced(("import torch\n",
           "import dataclasses\nimport enum\nimport torch\n"))
           + "\n@dataclasses.dataclass(frozen=True)\nclass Shape:\n    n: int\n"
           "\nclass Mode(enum.Enum):\n    FAST = 1\n", RELU_TASK, "both"),
    Honest("B23", "a byte order mark", "\ufeff" + RELU, RELU_TASK, "both"),
    Honest("B23", "line ends of Windows", RELU.replace("\n", "\r\n"), RELU_TASK, "both"),
    Honest("B23", "letters of other scripts", replaced(
        ("    v = tl.load", "    # größer als 0 → bleibt, sonst 0 ✓\n    v = tl.load"))
         + "\nPI_NÄHERUNG = 'π ≈ 3,14 „ungefähr“'\n",
           RELU_TASK, "both"),
    Honest("B23", "tabs", RELU.replace("    ", "\t"), RELU_TASK, "both"),
    Honest("B23", "no line end at the end", RELU.rstrip("\n"), RELU_TASK, "both"),
    Honest("B27", "a demo that only a script would run", RELU + DEMO, RELU_TASK, "both"),
    Honest("B27", "prints at import and in each call", replaced(("    x = x.contiguous()\n",
           "    print('shape', x.shape, flush=True)\n    x = x.contiguous()\n")) + "\nprint('{\"status\": \"ok\"}')\n",
           RELU_TASK, "both"),
    Honest("B27", "a test of itself at import", RELU + "\nassert torch.equal(torch.relu(torch.tensor([-1.0])),"
           " torch.tensor([0.0]))\n", RELU_TASK, "both"),
    Honest("B27", "warnings and logging", replaced(("import torch\n", "import logging, warnings\nimport torch\n"))
           + "\nlogging.basicConfig(level=logging.DEBUG)\nwarnings.warn('slow')\nlogging.info('loaded')\n",
           RELU_TASK, "both"),
    Honest("B28", "several classes", HEAD + RELU_KERNEL + SEVERAL, RELU_TASK, "both"),
    Honest("B28", "forbidden words in a docstring", WORDS + RELU, RELU_TASK, "both"),
    Honest("B28", "pass, in an empty class and a branch", RELU
           + "\nclass Nothing(Exception):\n    pass\n\nif True:\n    pass\n",
           RELU_TASK, "both"),
    Honest("B28", "an import that may fail", RELU
           + "\ntry:\n    import torch_npu\nexcept ImportError:\n    torch_npu = None\n",
           RELU_TASK, "both"),
    Honest("B28", "try around a launch that works", replaced(("        " + LAUNCH, "        try:\n            " + LAUNCH
           + "\n        except RuntimeError as error:\n            raise RuntimeError(f'launch: {error}') from error")),
           RELU_TASK, "both"),
    Honest("B28", "while True with a way out", replaced((LAUNCH, "kernel[grid_of(n)](x, out, n, BLOCK=1024)")) + LOOP,
           RELU_TASK, "both"),
    Honest("B28", "the word stream", RELU.replace("out_ptr", "downstream_ptr").replace("x_ptr", "stream_ptr"),
           RELU_TASK, "both"),
    Honest("B28", "floor division and hashes in strings", replaced(("triton.cdiv(n, 1024)", "(n + 1023) // 1024"))
           + "\nNOTE = '# not a comment // nor this'\n", RELU_TASK, "both"),
    Honest("B28", "settings of the environment and of PyTorch", RELU + "\nimport os\n"
           "DEBUG = os.environ.get('KERNEL_DEBUG', '0') == '1'\ntorch.backends.cuda.matmul.allow_tf32 = False\n",
           RELU_TASK, "both"),
    Honest("B29", "a lock and a thread that ends", replaced(("    x = x.contiguous()\n",
           "    with LOCK:\n        x = x.contiguous()\n"), ("import torch\n", "import threading\nimport torch\n"))
           + "\nLOCK = threading.Lock()\n_t = threading.Thread(target=print)\n_t.start()\n_t.join()\n",
           RELU_TASK, "both"),
    Honest("B29", "threads of PyTorch", RELU + "\ntorch.set_num_threads(2)\n", RELU_TASK, "both"),
    Honest("B48", "the device of a GPU where there is one", replaced(("out = torch.empty_like(x)",
           "out = torch.empty(x.shape, dtype=x.dtype, device='cuda' if x.is_cuda else 'cpu')")), RELU_TASK, "both"),
    Honest("B48", "a model moved by its owner", HEAD + RELU_KERNEL + MODEL
           + "\nif torch.cuda.is_available():\n    torch.zeros(1, device='cuda')\n", RELU_TASK, "both"),
    Honest("B27", "a wrapper and a model in one file", HEAD + RELU_KERNEL + MODEL + WRAPPER, RELU_TASK, "both"),
)  # fmt: skip
