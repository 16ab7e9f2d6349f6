"""What stands between strangers' code and everything else, applied by a process to itself.

`enter` is called once in a freshly forked, single-threaded process, before any strange code is loaded
and before a CUDA context exists. It takes away: capabilities, another uid's rights (where the
interpreter is readable by others), most of the file system (Landlock), the network, new sessions and
process groups, ptrace and namespaces (seccomp), and unbounded memory and descriptors (rlimits).
What a kernel or a library cannot do is left out and missing from the level that `enter` returns: the
level is evidence in every verdict. It does not kill or watch anything; that is the judge's work.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
_CLONE_NEWUSER = 0x10000000
_AF_INET, _AF_INET6, _AF_PACKET, _AF_VSOCK = 2, 10, 17, 40
_CLONE_NEW_ANY = 0x7E020080 & ~0x00000080  # every namespace flag but CLONE_NEWTIME, which clone() cannot carry
_DENIED = (
    "setsid", "setpgid", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "pidfd_open",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "unshare", "setns", "mount", "umount2", "chroot",
    "pivot_root", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "kcmp",
    "open_by_handle_at", "init_module", "finit_module", "kexec_load", "reboot", "swapon", "sethostname",
    "settimeofday", "clock_settime", "acct", "quotactl",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What one sandboxed process may use."""

    memory_bytes: int | None
    """Address space beyond what the process has mapped at its start; None where CUDA needs it unbounded."""
    file_bytes: int = 1 << 30
    open_files: int = 512
    cpu_seconds: int = 7200


_libc = ctypes.CDLL(None, use_errno=True)


def preload() -> None:
    """Import what `enter` needs, once, before any fork: finding libseccomp alone takes seconds."""
    for library in ("py_landlock", "pyseccomp"):
        with contextlib.suppress(ImportError, OSError, RuntimeError):
            importlib.import_module(library)


def die_with_parent(parent: int) -> None:
    """SIGKILL this process when its parent's spawning thread ends; exit now if it already has."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


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


def readable_roots(exclude: Sequence[str] = ("kb_ray", "deployments")) -> list[str]:
    """Paths that Python, torch and triton need to read: the interpreter, system libraries and each
    installed package but kb_ray itself, whose built-in tasks hold references."""
    roots = [
        "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/dev", "/proc", "/sys", "/etc/ld.so.cache",
        "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/nsswitch.conf",
        "/etc/passwd", "/etc/nvidia", "/run/nvidia-persistenced", sys.base_prefix, sys.base_exec_prefix,
    ]  # fmt: skip
    venv = os.path.realpath(sys.prefix)
    roots += [os.path.join(venv, name) for name in ("bin", "include", "lib64", "pyvenv.cfg")]
    for entry in sys.path:
        if os.path.basename(entry) not in ("site-packages", "dist-packages", "site"):
            continue
        names = os.listdir(entry) if os.path.isdir(entry) else []
        roots += [os.path.join(entry, n) for n in names if n not in exclude and not n.startswith("kb_ray")]
    for variable in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"):
        roots += [p for p in os.environ.get(variable, "").split(":") if p]
    return [path for path in dict.fromkeys(roots) if os.path.exists(path)]


def list_roots() -> list[str]:
    """Folders that may be listed, so that imports find their packages, though not read as a whole."""
    return [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages", "site")]


def confine_files(scratch: str, readable: Sequence[str], listable: Sequence[str], cuda: bool) -> int:
    """Landlock: read the given roots, write only the scratch (and devices); no TCP, no signals or
    abstract sockets to the outside. Returns the kernel's Landlock ABI, 0 where there is none."""
    try:
        from py_landlock import AccessFs, Landlock, LandlockError
    except ImportError:
        return 0
    everything = AccessFs(sum(flag.value for flag in AccessFs))
    on_file = AccessFs.READ_FILE | AccessFs.EXECUTE
    # Best effort, so that older kernels do what they can; rights of folders are refused for single files.
    lock = Landlock(strict=False)
    try:
        for path in readable:
            lock.add_path_rule(path, access=on_file | AccessFs.READ_DIR if os.path.isdir(path) else on_file)
        lock.add_path_rule(*[p for p in listable if os.path.isdir(p)], access=AccessFs.READ_DIR)
        lock.add_path_rule(scratch, access=everything)
        if cuda:
            # CUDA writes in its own /proc entry, and its IPC needs more of /dev than the nvidia nodes.
            lock.add_path_rule("/dev", "/proc", access=everything)
        else:
            lock.add_path_rule("/dev/null", access=AccessFs.READ_FILE | AccessFs.WRITE_FILE)
        lock.apply()
        return int(lock.abi_version)
    except LandlockError:
        return 0


def filter_syscalls(cuda: bool) -> None:
    """seccomp: no inet sockets, sessions, groups, namespaces, ptrace, nor clearing of the death signal."""
    import errno

    import pyseccomp

    deny = pyseccomp.ERRNO(errno.EPERM)
    allowed = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in _DENIED:
        try:
            allowed.add_rule(deny, name)
        except (OSError, ValueError):  # a call that this architecture or libseccomp does not know
            continue
    families = (_AF_INET, _AF_INET6, _AF_PACKET, _AF_VSOCK) if cuda else tuple(range(2, 64))
    for family in families:
        allowed.add_rule(deny, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    allowed.add_rule(deny, "prctl", pyseccomp.Arg(0, pyseccomp.EQ, PR_SET_PDEATHSIG))
    allowed.add_rule(deny, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_NEWUSER, _CLONE_NEWUSER))
    # clone3 hides its flags in memory: glibc falls back to clone where it is said not to exist.
    allowed.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    allowed.load()


def enter(scratch: str, limits: Limits, readable: Sequence[str], uid: int | None, cuda: bool, parent: int) -> str:
    """Confine this process, a child of `parent`, for good.

    Returns the level reached, e.g. `rlimits+caps+landlock7+seccomp`.
    """
    os.setsid()
    level = []
    limit_resources(limits)
    level.append("rlimits")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        level.append("uid")
    # A change of uid clears both the death signal and the dumpable flag.
    die_with_parent(parent)
    with contextlib.suppress(OSError):
        drop_capabilities()
        level.append("caps")
    abi = confine_files(scratch, readable, list_roots(), cuda)
    if abi:
        level.append(f"landlock{abi}")
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        filter_syscalls(cuda)
        level.append("seccomp")
    return "+".join(level)


def separate_uid(number: int) -> int | None:
    """A uid of its own for a sandboxed process, or None: not root, or the interpreter is not open to others."""
    if os.geteuid() != 0:
        return None
    for path in {sys.base_prefix, sys.prefix, *list_roots()}:
        while path != "/":
            if not os.stat(path).st_mode & 0o001:
                return None
            path = os.path.dirname(path)
    return 200_000 + number % 50_000


def level() -> str:
    """The level that candidates get on this machine, found by entering the sandbox in a child process."""
    import subprocess
    import tempfile

    probe = (
        "import os, sys; from kb_ray.bench import sandbox; "
        "print(sandbox.enter(sys.argv[1], sandbox.Limits(None), sandbox.readable_roots(), None, False, os.getppid()))"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.TemporaryDirectory() as scratch:
        answer = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); {probe}", scratch],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    return answer.stdout.strip() or f"none ({answer.stderr.strip().splitlines()[-1:]})"
