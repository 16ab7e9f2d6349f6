"""Which system calls a sandboxed process may not make: the seccomp filter that `sandbox.enter` loads.

Denied is what would outlive the process, reach another one, change a file that Landlock does not cover
(owner, mode, times), or get around a limit. Does not know paths, users or what the process is for.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any

PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_AF_INET, _AF_INET6, _AF_PACKET, _AF_VSOCK = 2, 10, 17, 40
_LANDLOCK_WITH_SIGNALS = 6

_DENIED = (
    "setsid", "setpgid", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "pidfd_open",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "unshare", "setns", "mount", "umount2", "chroot",
    "pivot_root", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "kcmp",
    "open_by_handle_at", "init_module", "finit_module", "kexec_load", "reboot", "swapon", "sethostname",
    "settimeofday", "clock_settime", "acct", "quotactl",
    # What System V and POSIX keep until somebody removes it: memory left behind, and a way to the next candidate.
    "shmget", "shmat", "semget", "msgget", "mq_open",
    "chown", "fchown", "lchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
    "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
    "ioprio_set", "migrate_pages", "move_pages",
    # News of files that it may not open: a way to the next candidate, and of what others are at.
    "inotify_init", "inotify_init1", "inotify_add_watch", "fanotify_init", "fanotify_mark",
)  # fmt: skip
_DENIED_WITHOUT_GPU = ("memfd_create", "memfd_secret")
"""Memory beyond the limit on address space."""
_DENIED_ON_OTHERS = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
"""Calls whose first argument is a process, 0 for the caller."""
_PRETENDED = ("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat")
"""Calls that do nothing and succeed: compilers and `shutil.copy` make them on files of their own."""
_SIGNALS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")


def filter_syscalls(cuda: bool, landlock: int) -> None:
    """Load the filter for good. `landlock`: the ABI that is in force; older ones leave signals to this filter.

    ImportError, OSError or RuntimeError where seccomp or its library is missing.
    """
    import pyseccomp

    deny, equal, other = pyseccomp.ERRNO(errno.EPERM), pyseccomp.EQ, pyseccomp.NE
    filtering = _Filter(pyseccomp.SyscallFilter(pyseccomp.ALLOW))
    for name in _DENIED + (() if cuda else _DENIED_WITHOUT_GPU):
        filtering.rule(deny, name)
    for name in _PRETENDED:
        filtering.rule(pyseccomp.ERRNO(0), name)
    for name in _DENIED_ON_OTHERS:
        filtering.rule(deny, name, pyseccomp.Arg(0, other, 0))
    for position in (0, 1):  # the kind of target, and which one
        filtering.rule(deny, "setpriority", pyseccomp.Arg(position, other, 0))
    filtering.rule(deny, "prctl", pyseccomp.Arg(0, equal, PR_SET_PDEATHSIG))
    filtering.rule(deny, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_NEWUSER, _CLONE_NEWUSER))
    # clone3 hides its flags in memory: glibc falls back to clone where it is said not to exist.
    filtering.rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    if cuda:
        for family in (_AF_INET, _AF_INET6, _AF_PACKET, _AF_VSOCK):
            filtering.rule(deny, "socket", pyseccomp.Arg(0, equal, family))
        # CUDA wants to make a Unix socket, but nobody has to be at the other end of it.
        filtering.rule(pyseccomp.ERRNO(errno.ECONNREFUSED), "connect")
    else:
        filtering.rule(deny, "socket")
    if landlock < _LANDLOCK_WITH_SIGNALS:
        for name in _SIGNALS:
            filtering.rule(deny, name, pyseccomp.Arg(0, other, os.getpid()))
        for name in ("tkill", "pidfd_send_signal"):
            filtering.rule(deny, name)
    filtering.load()


class _Filter:
    """A filter that leaves out calls which this architecture or library does not know."""

    def __init__(self, calls: Any) -> None:
        self._calls = calls

    def rule(self, action: Any, name: str, *arguments: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._calls.add_rule(action, name, *arguments)

    def load(self) -> None:
        self._calls.load()
