"""What no honest Triton kernel file needs, as dotted paths with the reason that the model is told.

Short on purpose. A line here costs honest kernels if it is wrong; what it misses is met when the code runs,
in a process that holds nothing worth reaching. Exceptions, loops, `os.environ`, `triton.runtime.driver`,
`triton.testing` and numpy are therefore not here.
"""

from __future__ import annotations

_PROCESS = "a kernel file starts no other program or process"
_NETWORK = "a kernel file uses no network"
_REACH = "it reaches into the interpreter, which a kernel has no use for"
_HIDDEN = "code must stand in the file as it is, not be made or loaded at run time"
_COMPILER = "kernels must be written in Triton by hand, not made by a compiler from PyTorch code"
_NATIVE = "kernels must be written in Triton, not in CUDA, C++ or another kernel language"
_LIBRARY = "kernels must be written in this file, not taken from a library"
_JUDGE = "the evaluation and the reference are not for the candidate to use"

_TABLE: dict[str, str] = {
    _PROCESS: (
        "subprocess multiprocessing pty os.system os.popen os.fork os.forkpty os.posix_spawn os.posix_spawnp "
        "os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe "
        "os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe "
        "torch.multiprocessing"
    ),
    _NETWORK: (
        "socket socketserver ssl urllib urllib2 urllib3 http requests httpx aiohttp ftplib torch.hub huggingface_hub"
    ),
    _REACH: (
        "gc ctypes _ctypes cffi sys._getframe sys._current_frames sys.settrace sys.setprofile sys.monitoring "
        "threading.settrace threading.setprofile inspect.currentframe inspect.stack inspect.trace "
        "inspect.getouterframes inspect.getinnerframes traceback.walk_stack torch.utils._python_dispatch "
        "triton.runtime.interpreter __builtins__"
    ),
    _HIDDEN: (
        "exec eval compile __import__ builtins.exec builtins.eval builtins.compile builtins.__import__ "
        "pickle _pickle cPickle dill cloudpickle marshal importlib imp runpy torch.load torch.ops.load_library"
    ),
    _COMPILER: "torch.compile torch.compiler.compile torch._dynamo torch._inductor torch.export torch._export",
    _NATIVE: (
        "torch.utils.cpp_extension torch.cuda._compile_kernel torch.cuda.jiterator cupy numba pycuda cuda "
        "pynvrtc taichi tvm warp cutlass tilelang jax tensorflow"
    ),
    _LIBRARY: (
        "flash_attn flash_attn_interface flashinfer liger_kernel xformers fla flag_gems triton_kernels apex "
        "bitsandbytes vllm sglang transformer_engine mamba_ssm causal_conv1d unsloth torchao deepspeed"
    ),
    _JUDGE: "kb_ray reference",
}
PATHS: dict[str, str] = {path: reason for reason, paths in _TABLE.items() for path in paths.split()}
"""Forbidden dotted path (all below it too) -> reason."""

ALLOWED = ("torch._inductor.runtime.triton_helpers",)
"""Allowed although it lies below a forbidden path: device functions (`libdevice`) that kernels call."""

_INNER = (
    "f_back f_globals f_locals f_builtins tb_frame gi_frame cr_frame ag_frame __globals__ __builtins__ "
    "__closure__ __code__ __subclasses__"
)
ATTRIBUTES: dict[str, str] = dict.fromkeys(_INNER.split(), _REACH)
"""Forbidden attribute names, whatever they are attributes of -> reason."""

TEXTS: dict[str, str] = {"/proc/": "a kernel file does not read the state of processes"}
"""Beginnings of strings that an honest file does not hold -> reason."""


def reason_against(path: str) -> tuple[str, str] | None:
    """(forbidden path, reason) that covers a dotted path; None where it may be used."""
    if f"{path}.".startswith(tuple(f"{allowed}." for allowed in ALLOWED)):
        return None
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        prefix = ".".join(parts[:end])
        if prefix in PATHS:
            return prefix, PATHS[prefix]
    return None
