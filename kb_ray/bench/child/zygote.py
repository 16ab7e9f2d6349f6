"""A process with torch and triton imported and nothing else done: it forks one sandboxed child per request.

Runs no tensor operation, never touches CUDA, never sees a reference, a seed or an input. It asserts that
it has a single thread before each fork, since a child forked beside another thread can hang at its
first parallel operation. It reports each child's pid (with a pidfd, so that the pid cannot be reused
unseen) and, by waitpid, how each one ended, and reaps what they leave. It kills nobody.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import traceback
from typing import Any

from kb_ray.bench import sandbox
from kb_ray.bench.child import provenance
from kb_ray.bench.child.frames import Channel, FrameError, Kind, wait_readable
from kb_ray.bench.child.message import pack, unpack
from kb_ray.bench.child.serving import serve


class Zygote:
    """Serves one judge over one channel until it closes."""

    def __init__(self, channel: Channel, cuda: bool, gpu_node: str | None) -> None:
        self.channel = channel
        self.cuda = cuda
        self.visible = sandbox.visible(cuda, gpu_node)
        self.children: dict[int, tuple[int, int]] = {}  # pidfd -> (pid, id)
        self.wake, self._wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        while True:
            ready = wait_readable([self.channel.fileno(), self.wake, *self.children], None)
            if self.wake in ready:
                os.read(self.wake, 4096)
                self._reap_ended()
            for pidfd in [fd for fd in ready if fd in self.children]:
                self._reap(pidfd)
            if self.channel.fileno() in ready:
                try:
                    frame = self.channel.recv()
                except FrameError:
                    return
                self._fork(unpack(frame.payload), frame.fds)

    def _reap_ended(self) -> None:
        """Reap whatever has ended: our children, and theirs, which become ours when a candidate dies first.

        Left to process 1, as in many containers, they would stay as zombies for ever.
        """
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pidfd = next((fd for fd, (pid, _) in self.children.items() if pid == ended.si_pid), None)
            if pidfd is None:
                os.waitpid(ended.si_pid, 0)
            else:
                self._reap(pidfd)

    def _reap(self, pidfd: int) -> None:
        pid, identity = self.children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        self.channel.send(Kind.EXITED, pack(id=identity, status=status))

    def _fork(self, request: dict[str, Any], fds: tuple[int, ...]) -> None:
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, f"zygote has {threads} threads: a fork would be unsafe"
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            # Out of processes: this request fails, the others go on.
            self.channel.send(Kind.FORKED, pack(id=request["id"], pid=-(error.errno or 0)))
            return
        finally:
            if os.getpid() == parent:
                for fd in fds:
                    os.close(fd)
        if pid == 0:
            self._child(request, fds, parent)
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = (pid, request["id"])
        self.channel.send(Kind.FORKED, pack(id=request["id"], pid=pid), [pidfd])

    def _child(self, request: dict[str, Any], fds: tuple[int, ...], parent: int) -> None:
        """Never returns: whatever happens, the child must not go on as a second zygote."""
        try:
            sock_fd, log_fd, state_fd = fds
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.channel.close()
            for fd in (self.wake, self._wake_end, *self.children):
                os.close(fd)
            null = os.open("/dev/null", os.O_RDONLY)
            for target, source in ((0, null), (1, log_fd), (2, log_fd)):
                os.dup2(source, target)
            os.close(null)
            os.close(log_fd)
            scratch = str(request["scratch"])
            limits = sandbox.Limits(request["memory"])
            _private_environment(scratch)
            level = sandbox.enter(scratch, limits, self.visible, request["uid"], self.cuda, parent)
            random.seed()
            serve(Channel.from_fd(sock_fd), level, self.cuda, provenance.State(state_fd), scratch)
        except BaseException:
            traceback.print_exc()
            os._exit(70)
        os._exit(0)


def _private_environment(scratch: str) -> None:
    home = os.path.join(scratch, "home")
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        os.environ[variable] = home
    tempfile.tempdir = home  # whatever was imported so far may have asked for it, and it is kept
    os.environ["TRITON_CACHE_DIR"] = os.path.join(scratch, "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(scratch, "inductor")
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(scratch, "extensions")
    os.chdir(scratch)


def main(channel_fd: int, parent: int, cuda: bool, gpu_node: str | None = None) -> None:
    sandbox.die_with_parent(parent)
    sandbox.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    provenance.install(cuda)
    sandbox.preload()
    channel = Channel.from_fd(channel_fd)
    channel.send(Kind.READY, pack(pid=os.getpid()))
    with contextlib.suppress(FrameError):
        Zygote(channel, cuda, gpu_node).serve()
    sys.exit(0)
