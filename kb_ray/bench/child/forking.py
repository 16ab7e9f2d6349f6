"""The judge's end of a zygote: asks it to fork sandboxed children, bounds them, hears of each one's end.

A zygote's own death fails whatever waits for it; nothing here restarts one.
"""

from __future__ import annotations

import functools
import itertools
import os
import secrets
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

from kb_ray.bench import sandbox
from kb_ray.bench.child.buffers import make_memfd
from kb_ray.bench.child.cgroup import confine
from kb_ray.bench.child.children import Child
from kb_ray.bench.child.endings import Died, Ending, Raised, TimedOut
from kb_ray.bench.child.exclusive import Slot
from kb_ray.bench.child.frames import Channel, FrameError, Kind
from kb_ray.bench.child.message import pack, unpack
from kb_ray.bench.child.provenance import State
from kb_ray.bench.child.watchdog import Bounds, Watchdog
from kb_ray.bench.sweep import erase
from kb_ray.errors import InfraError

CHILD_MEMORY_BYTES = 8 << 30
"""Of one process on a CPU beyond what it starts with: with it an allocation fails, as it should."""
START_TIMEOUT_S = 60.0


class Zygote:
    """The judge's end of one zygote. Thread-safe."""

    def __init__(
        self, channel: Channel, cuda: bool, folder: Path, template: Path | None,
        cgroups: Path | None, bounds: Bounds,
    ) -> None:  # fmt: skip
        self.channel, self.cuda, self.folder, self.template = channel, cuda, folder, template
        self.cgroups, self.bounds = cgroups, bounds
        self.left: list[int] = []
        """Process groups that outlived their own killing."""
        self._ids = itertools.count(1)
        self._forked: dict[int, tuple[threading.Event, list[int]]] = {}
        self._endings: dict[int, Ending] = {}
        self._lock = threading.Lock()
        self.alive = True
        frame = channel.recv(timeout_s=120)
        self.pid = int(unpack(frame.payload)["pid"])
        self._watchdog = Watchdog(self.pid, self.bounds)
        threading.Thread(target=self._read, name="zygote-reader", daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                frame = self.channel.recv()
                message = unpack(frame.payload)
                if frame.kind == Kind.FORKED:
                    self._told(message["id"], [message["pid"], *frame.fds])
                elif frame.kind == Kind.EXITED:
                    with self._lock:
                        ending = self._endings.get(message["id"])
                    # One whose end took longer than anyone waited for is forgotten already.
                    if ending is not None:
                        ending.status = message["status"]
                        ending.event.set()
        except FrameError:
            self.alive = False
            for event, _ in list(self._forked.values()):
                event.set()
            for ending in list(self._endings.values()):
                ending.event.set()

    def _told(self, identity: int, news: list[int]) -> None:
        with self._lock:
            event, answer = self._forked.get(identity, (None, []))
            answer += news
        if event is not None:
            event.set()
        else:  # too late: nobody waits for this child any more
            for fd in news[1:]:
                os.close(fd)

    def spawn(self, slot: Slot | None = None) -> Child:
        """Fork a sandboxed child and wait until it is confined and ready; InfraError if it cannot be had.

        With `slot` it joins those that stop while one of them is timed.
        """
        if slot is None:
            child = self._begin()
        else:
            with slot.shared():
                child = self._begin()
                child.clock, child.sharing = functools.partial(slot.clock, child), slot.shared
                slot.join(child)
        try:
            child.wait_ready(START_TIMEOUT_S)
        except (Died, Raised, TimedOut) as error:
            child.kill()
            if slot is not None:
                slot.leave(child)
            raise InfraError(f"a sandboxed process did not start: {error} {child.log()[-500:]}") from error
        child.level += "+watchdog" if child.sampled else "+cgroup"
        return child

    def _begin(self) -> Child:
        """Fork a child, recorded, bounded and watched from its first moment."""
        identity = next(self._ids)
        # A name that nobody guesses: whether a path is there can be asked of any.
        scratch = self.folder / f"c{identity}-{secrets.token_hex(8)}"
        uid = None if self.cuda else sandbox.separate_uid()
        _make_scratch(scratch, self.template, uid)
        ours, theirs = socket.socketpair()
        log_read, log_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(log_read, False)
        state_fd = make_memfd(State.SIZE)
        ending = Ending()
        request = {
            "id": identity,
            "scratch": str(scratch),
            "uid": uid,
            "memory": None if self.cuda else CHILD_MEMORY_BYTES,
        }
        try:
            pid, pidfd = self._fork(request, ending, [theirs.fileno(), log_write, state_fd])
        except InfraError:
            # Should the child come to be after all, it ends for want of this socket.
            ours.close()
            os.close(log_read)
            os.close(state_fd)
            erase(scratch)
            raise
        finally:
            theirs.close()
            os.close(log_write)
        self._record(pid)
        child = Child(self, identity, pid, pidfd, Channel(ours), log_read, State(state_fd), scratch, ending)
        os.close(state_fd)
        own = f"{self.folder.name}-{identity}"
        child.cgroup = confine(self.cgroups, own, pid, self.bounds.memory_bytes, self.bounds.tasks)
        self._watchdog.watch(child)
        return child

    def _fork(self, request: dict[str, Any], ending: Ending, fds: list[int]) -> tuple[int, int]:
        """(pid, pidfd) of a new child; InfraError if there is none."""
        identity, waiting, answer = request["id"], threading.Event(), list[int]()
        with self._lock:
            self._forked[identity] = (waiting, answer)
            self._endings[identity] = ending
        try:
            self.channel.send(Kind.FORK, pack(**request), fds)
            waiting.wait(START_TIMEOUT_S)
        except FrameError:
            self.alive = False
        with self._lock:
            del self._forked[identity]
            if len(answer) < 2:
                del self._endings[identity]
        if len(answer) < 2:
            why = os.strerror(-answer[0]) if answer else "no answer" if self.alive else "it is gone"
            raise InfraError(f"the zygote did not fork ({why})")
        return answer[0], answer[1]

    def unwatch(self, pid: int) -> None:
        self._watchdog.forget(pid)

    def forget(self, identity: int, pid: int, gone: bool) -> None:
        if not gone:
            self.left.append(pid)
        with self._lock:
            self._endings.pop(identity, None)
        (self.folder / "groups" / str(pid)).unlink(missing_ok=True)

    def _record(self, pid: int) -> None:
        """Remember the group for whoever has to sweep after this judge is killed."""
        (self.folder / "groups" / str(pid)).touch()


def _make_scratch(scratch: Path, template: Path | None, uid: int | None) -> None:
    scratch.mkdir(mode=0o700)
    (scratch / "home").mkdir()
    if template is not None:
        shutil.copytree(template, scratch / "triton")
    if uid is not None:
        for path in [scratch, *scratch.rglob("*")]:
            os.chown(path, uid, uid)
