"""What stands between strangers' code and everything else, applied by a process to itself.

`enter` is called once in a freshly forked, single-threaded process, before any strange code is loaded
and before a CUDA context exists. It takes away: capabilities, another uid's rights (where the
interpreter is readable by others), most of the file system (Landlock), the network, new sessions and
process groups, ptrace and namespaces (`syscalls`), and unbounded memory and descriptors (rlimits).
What a kernel or a library cannot do is left out and missing from the level that `enter` returns: the
level is evidence in every verdict. It does not kill or watch anything; that is the judge's work.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib
import os
import re
import resource
import secrets
import signal
import sys
from dataclasses import dataclass

from kb_ray.bench.syscalls import PR_SET_PDEATHSIG, filter_syscalls

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 24, 36, 38


@dataclass(frozen=True)
class Limits:
    """What one sandboxed process may use."""

    memory_bytes: int | None
    """Address space beyond what the process has mapped at its start; None where CUDA needs it unbounded."""
    file_bytes: int = 1 << 30
    open_files: int = 512
    cpu_seconds: int = 7200
    processes: int = 512


_libc = ctypes.CDLL(None, use_errno=True)
_GPU_NODE = re.compile(r"/dev/nvidia\d+")
# Of /proc without a GPU, beside the process's own entry. CUDA's driver reads more of it than is written down anywhere.
_PROC = tuple(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "version", "filesystems", "loadavg", "sys"))
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def preload() -> None:
    """Import what `enter` needs, once, before any fork: finding libseccomp alone takes seconds."""
    for library in ("py_landlock", "pyseccomp"):
        with contextlib.suppress(ImportError, OSError, RuntimeError):
            importlib.import_module(library)


def adopt_orphans() -> None:
    """Become the parent of whatever this process's descendants leave behind (child subreaper)."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """SIGKILL this process when its parent's spawning thread ends; exit now if it already has."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def hide_memory() -> None:
    """Close this process's /proc entry to others of its user. Not for CUDA, which needs its own."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_capabilities() -> None:
    """Give up every capability for good: root without capabilities cannot read another process's /proc."""
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    empty = (ctypes.c_uint32 * 6)()
    if _libc.capset(header, empty) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def limit_resources(limits: Limits) -> None:
    def lower(what: int, value: int) -> None:
        _, hard = resource.getrlimit(what)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))

    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_NOFILE, limits.open_files)
    lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    lower(resource.RLIMIT_CPU, limits.cpu_seconds)
    if limits.memory_bytes is not None:
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        lower(resource.RLIMIT_AS, mapped + limits.memory_bytes)


@dataclass(frozen=True)
class Visible:
    """What a sandboxed process sees of the file system besides its scratch."""

    readable: tuple[str, ...]
    """Files, and folders with all that is in them."""
    listable: tuple[str, ...]
    """Folders whose names may be listed, so that imports find their packages."""
    devices: tuple[str, ...] = ()
    """Files of devices, and folders of them, that may be written."""


def visible(cuda: bool, gpu_node: str | None = None) -> Visible:
    """What Python, torch and triton need: the interpreter, system libraries and the installed packages, but
    not kb_ray itself, wherever it is installed: its built-in tasks hold references.

    `gpu_node`: the file of the one GPU to be used, such as /dev/nvidia0; None: of all.
    """
    roots = [
        "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/etc/ld.so.cache",
        "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/nsswitch.conf",
        "/etc/passwd", "/etc/nvidia", "/run/nvidia-persistenced", sys.base_prefix, sys.base_exec_prefix,
    ]  # fmt: skip
    roots += ["/proc"] if cuda else _PROC
    roots += [os.path.join(sys.prefix, name) for name in ("bin", "include", "lib", "lib64", "pyvenv.cfg")]
    roots += package_folders()
    for variable in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"):
        roots += [p for p in os.environ.get(variable, "").split(":") if p]
    hidden = _own_code()
    readable: list[str] = []
    listable = ["/dev"] if cuda else []
    for root in dict.fromkeys(roots):
        if os.path.exists(root):
            _around(root, hidden, readable, listable)
    devices = [p for p in glob.glob("/dev/nvidia*") if gpu_node in (None, p) or not _GPU_NODE.fullmatch(p)]
    return Visible(tuple(dict.fromkeys(readable)), tuple(dict.fromkeys(listable)), tuple(devices if cuda else ()))


def package_folders() -> list[str]:
    """Folders of installed packages on the import path."""
    return [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages", "site")]


def _own_code() -> set[str]:
    """Real paths of kb_ray, of what is installed beside it, and of the repository it runs from."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    names = ("kb_ray", "deployments")
    found = {os.path.realpath(os.path.join(p, name)) for p in package_folders() for name in names}
    repository = os.path.dirname(package)
    alone = os.path.basename(repository) not in ("site-packages", "dist-packages", "site")
    return found | {package} | ({repository} if alone else set())


def _around(path: str, hidden: set[str], readable: list[str], listable: list[str]) -> None:
    """Add `path`, or where something in it is hidden the rest of it, piece by piece."""
    real = os.path.realpath(path)
    if real in hidden:
        return
    if not any(other.startswith(f"{real}/") for other in hidden):
        readable.append(real)
        return
    listable.append(real)
    for name in os.listdir(path):
        _around(os.path.join(path, name), hidden, readable, listable)


def confine_files(scratch: str, seen: Visible, cuda: bool) -> int:
    """Landlock: read what is visible, write only the scratch (and devices); no TCP, no signals or
    abstract sockets to the outside. Returns the kernel's Landlock ABI, 0 where there is none."""
    try:
        from py_landlock import AccessFs, Landlock, LandlockError
    except ImportError:
        return 0
    everything = AccessFs(sum(flag.value for flag in AccessFs))
    # Triton's compiler starts the assembler and a C compiler; its interpreter starts nothing.
    on_file = AccessFs.READ_FILE | AccessFs.EXECUTE if cuda else AccessFs.READ_FILE
    everything = everything if cuda else everything & ~AccessFs.EXECUTE
    writing = AccessFs.READ_FILE | AccessFs.WRITE_FILE | AccessFs.TRUNCATE | AccessFs.IOCTL_DEV
    # Best effort, so that older kernels do what they can; rights of folders are refused for single files.
    lock = Landlock(strict=False)
    try:
        for path in filter(os.path.exists, seen.readable):  # not all exist for a uid of its own
            lock.add_path_rule(path, access=on_file | AccessFs.READ_DIR if os.path.isdir(path) else on_file)
        lock.add_path_rule(*filter(os.path.exists, seen.listable), access=AccessFs.READ_DIR)
        lock.add_path_rule(scratch, access=everything)
        lock.add_path_rule(f"/proc/{os.getpid()}", access=on_file | AccessFs.READ_DIR)
        for path in filter(os.path.exists, _DEVICES):
            lock.add_path_rule(path, access=AccessFs.READ_FILE | AccessFs.WRITE_FILE)
        if cuda:
            # CUDA writes in its own /proc entry, and needs nothing else in /dev.
            for path in (f"/proc/{os.getpid()}", *seen.devices):
                lock.add_path_rule(path, access=everything if os.path.isdir(path) else writing)
        lock.apply()
        return int(lock.abi_version)
    except LandlockError:
        return 0


def enter(scratch: str, limits: Limits, seen: Visible, uid: int | None, cuda: bool, parent: int) -> str:
    """Confine this process, a child of `parent`, for good.

    Returns the level reached, e.g. `rlimits+caps+landlock7+seccomp`.
    """
    os.setsid()
    level = []
    # Where memory runs out in spite of all limits, this process is to go first.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    limit_resources(limits)
    level.append("rlimits")
    if uid is not None:
        # Counted per user, all threads included: of use only to one who shares that user with nobody.
        resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        level.append("uid")
    # A change of uid clears both the death signal and the dumpable flag.
    die_with_parent(parent)
    with contextlib.suppress(OSError):
        drop_capabilities()
        level.append("caps")
    if not cuda:
        hide_memory()
    abi = confine_files(scratch, seen, cuda)
    if abi:
        level.append(f"landlock{abi}")
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        filter_syscalls(cuda, abi)
        level.append("seccomp")
    return "+".join(level)


def separate_uid() -> int | None:
    """A uid that nobody else has, or None: not root, no uid to be had, or the interpreter is not open to others."""
    if os.geteuid() != 0:
        return None
    for path in {sys.base_prefix, sys.prefix, *package_folders()}:
        while path != "/":
            if not os.stat(path).st_mode & 0o001:
                return None
            path = os.path.dirname(path)
    # In a user namespace there are few uids: those from 20,000 on are rarely given to anybody.
    end = min(_mapped("uid"), _mapped("gid"), 1 << 31)
    start = 1 << 20 if end > 1 << 21 else 20_000
    return start + secrets.randbelow(end - start) if end > start + 10_000 else None


def _mapped(kind: str) -> int:
    """The first id, counted from 0, that does not exist here."""
    if kind == "gid":
        with open("/proc/self/setgroups") as file:
            if file.read().strip() == "deny":
                return 0
    with open(f"/proc/self/{kind}_map") as file:
        first, _, count = (int(word) for word in file.readline().split())
    return count if first == 0 else 0
