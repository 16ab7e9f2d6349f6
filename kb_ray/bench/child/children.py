"""The judge's view of sandboxed processes: fork one from a zygote, command it, see it end, kill it.

A child's death is seen by pidfd at once and explained by the zygote's waitpid, or by the bound it was over;
a hang is seen by the clock of each command; either way nothing of the child is left: its process group, its
scratch folder, its shared memory. What a child answers is data here, decoded strictly and never believed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.buffers import HostBlock
from kb_ray.bench.child.cgroup import Cgroup
from kb_ray.bench.child.endings import Died as Died
from kb_ray.bench.child.endings import Ending, explain
from kb_ray.bench.child.endings import Raised as Raised
from kb_ray.bench.child.endings import TimedOut as TimedOut
from kb_ray.bench.child.frames import MAX_FDS, Channel, FrameError, FrameTimeout, Kind, wait_readable
from kb_ray.bench.child.message import pack, unpack
from kb_ray.bench.child.plans import Plan, told
from kb_ray.bench.child.provenance import State
from kb_ray.bench.child.strides import fill, strides_of
from kb_ray.bench.child.tree import dtype_name
from kb_ray.bench.child.values import TensorRef
from kb_ray.bench.child.watchdog import Excess, oom_kills
from kb_ray.bench.sweep import erase, kill_group
from kb_ray.errors import InfraError

LOG_BYTES = 16 << 10


def refs_of(tensors: Sequence[torch.Tensor]) -> list[TensorRef]:
    return [TensorRef(i, dtype_name(t.dtype), tuple(t.shape), strides=strides_of(t)) for i, t in enumerate(tensors)]


class Owner(Protocol):
    """What a child needs of the zygote that forked it."""

    cuda: bool
    alive: bool
    """Whether it still runs: children do not outlive it."""

    def unwatch(self, pid: int) -> None:
        """From now on nobody else kills this group."""
        ...

    def forget(self, identity: int, pid: int, gone: bool) -> None:
        """The child's end is dealt with. `gone`: nothing of its group is left."""
        ...


class Child:
    """One sandboxed process. Used by one thread at a time."""

    def __init__(
        self, owner: Owner, identity: int, pid: int, pidfd: int, channel: Channel, log_fd: int,
        state: State, scratch: Path, ending: Ending,
    ) -> None:  # fmt: skip
        self.owner, self.identity, self.pid, self.pidfd = owner, identity, pid, pidfd
        self.channel, self.state, self.scratch = channel, state, scratch
        self.level = "none"
        self.blocks: dict[str, list[Any]] = {}
        self._log_fd, self._ending = log_fd, ending
        self._log, self._log_open = bytearray(), True
        self._closed = False
        self.broken = False
        """Whether it died or hung: nothing can be asked of it any more."""
        self.clock: Callable[[], float] = time.monotonic
        """What its timeouts are counted by: one that stands while the process is stopped, where it may be."""
        self.sharing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """Entered for what the judge itself does on the card on this child's behalf."""
        self.excess: Excess | None = None
        self.cgroup: Cgroup | None = None
        self._lent: list[Any] = []
        self._oom_kills = oom_kills()

    @property
    def sampled(self) -> bool:
        return self.cgroup is None

    @property
    def lent_bytes(self) -> int:
        """Bytes of the judge's own shared memory that the child may have mapped now."""
        return sum(tensor.nbytes for block in self._lent for tensor in list(block.tensors))

    def wait_ready(self, timeout_s: float) -> None:
        ready = self._answer(timeout_s)
        self.level = str(ready.get("level"))

    def ask(self, kind: Kind, request: dict[str, Any], timeout_s: float, fds: Sequence[int] = ()) -> dict[str, Any]:
        """Send a command and wait for its answer; Raised, Died or TimedOut."""
        try:
            self.channel.send(kind, pack(**request), fds, timeout_s)
            return self._answer(timeout_s)
        except FrameTimeout:
            self.broken = True
            raise TimedOut from None
        except FrameError:
            raise self._died() from None
        except TimedOut:
            self.broken = True
            raise

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = self.clock() + timeout_s
        while True:
            watched = [self.channel.fileno(), self.pidfd]
            # A closed log is always ready: watched further, it would keep the judge spinning.
            watched += [self._log_fd] if self._log_open else []
            ready = wait_readable(watched, deadline - self.clock())
            if self._log_fd in ready:
                self._drain()
            if self.channel.fileno() in ready:
                return self._receive(deadline)
            if self.pidfd in ready or self.excess is not None:
                raise self._died()
            if self.clock() >= deadline:
                raise TimedOut

    def _receive(self, deadline: float) -> dict[str, Any]:
        try:
            frame = self.channel.recv(timeout_s=max(0.1, deadline - self.clock()))
            for fd in frame.fds:  # a child has none to give
                os.close(fd)
            answer = unpack(frame.payload)
        except FrameTimeout:
            raise TimedOut from None
        except (FrameError, wire.WireError):
            raise self._died() from None
        if frame.kind == Kind.RAISED:
            raise Raised(answer)
        return answer

    def _died(self) -> Died | Raised:
        """Wait a moment for the end of a process that broke its channel, then say how it ended."""
        self.broken = True
        if not wait_readable([self.pidfd], 0.5):
            signal_quietly(self.pid)
        self._ending.event.wait(1.0)
        self._drain()
        if self._ending.status is None and self.excess is None and not self.owner.alive:
            raise InfraError("the process that starts candidates ended")
        over = self.excess or (self._out_of_memory() if self._ending.killed else None)
        return explain(self._ending.status, over, self.state.launching, self.log())

    def _out_of_memory(self) -> Excess | None:
        """Whether the kernel killed it for want of memory: within its cgroup, or in all of the machine."""
        if self.cgroup is not None and self.cgroup.ran_out_of_memory():
            return Excess("memory", "more memory was used than a candidate may have")
        if oom_kills() > self._oom_kills:
            return Excess("memory", "the machine ran out of memory")
        return None

    def _drain(self) -> None:
        """Keep the last of what was printed. One read a turn: a flood must not keep the judge from its clock."""
        try:
            printed = os.read(self._log_fd, 1 << 16)
        except BlockingIOError:
            return
        self._log_open = bool(printed)
        self._log += printed
        del self._log[:-LOG_BYTES]

    def log(self) -> str:
        return self._log.decode("utf-8", "replace")

    def block(self, refs: Sequence[TensorRef]) -> Any:
        if self.owner.cuda:
            from kb_ray.bench.child.cuda_ipc import CudaBlock

            return CudaBlock(refs)
        block = HostBlock(refs)
        # Replaced, never changed: the watchdog reads it from another thread.
        self._lent = [known for known in self._lent if known.tensors] + [block]
        return block

    def put(
        self, slot: str, tree: wire.Tree, tensors: Sequence[torch.Tensor], timeout_s: float, plans: Sequence[Plan] = ()
    ) -> None:
        """Give the child a private copy of `tensors` under a name, and how they may be changed."""
        replaced, self.blocks[slot] = self.blocks.get(slot, []), []
        refs = refs_of(tensors)
        step = len(refs) or 1
        if not self.owner.cuda:
            step = min(step, MAX_FDS)
        for at in range(0, max(len(refs), 1), step):
            part = refs[at : at + step]
            last = at + step >= len(refs)
            handle, fds = self._lend(slot, part, tensors[at : at + step])
            message = {"slot": slot, "refs": part, "handle": handle, "first": at == 0, "last": last}
            message |= {"tree": tree, "plans": told(plans)} if last else {}
            self.ask(Kind.PUT, message, timeout_s, fds)
        with self.sharing():
            for block in replaced:
                block.close()

    def _lend(self, slot: str, refs: list[TensorRef], tensors: Sequence[torch.Tensor]) -> tuple[bytes, list[int]]:
        """What the child opens a block by that holds copies of `tensors`."""
        if not refs:
            return b"", []
        with self.sharing():
            block = self.block(refs)
            self.blocks[slot].append(block)
            for target, source in zip(block.tensors, tensors, strict=True):
                fill(target, source)
            if self.owner.cuda:
                torch.cuda.synchronize()
        return block.handle, block.fds

    def refill(self, slot: str, tensors: Sequence[torch.Tensor]) -> None:
        """New values in the memory that the child already has under this name."""
        with self.sharing():
            for target, source in zip(self.held(slot), tensors, strict=True):
                fill(target, source)
            if self.owner.cuda:
                torch.cuda.synchronize()

    def held(self, slot: str) -> list[torch.Tensor]:
        """The judge's own view of what was put under a name, as the child has left it."""
        return [tensor for block in self.blocks[slot] for tensor in block.tensors]

    def guards_intact(self, slot: str) -> bool:
        return all(block.guards_intact() for block in self.blocks[slot])

    def free(self, slots: Sequence[str], timeout_s: float) -> None:
        self.ask(Kind.FREE, {"slots": list(slots)}, timeout_s)
        with self.sharing():
            for slot in slots:
                for block in self.blocks.pop(slot, []):
                    block.close()

    def pause(self) -> None:
        """Stop its whole group: it cannot refuse."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def strike(self) -> None:
        """SIGKILL to its group, from any thread until `kill`; whoever waits for it sees its end."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self._closed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """End the process and its whole group, and give back everything that was held for it."""
        if self._closed:
            return
        self._closed = True
        self.owner.unwatch(self.pid)
        gone = self._end_group()
        self._ending.event.wait(2.0)
        self.owner.forget(self.identity, self.pid, gone)
        self.channel.close()
        self.state.close()
        os.close(self.pidfd)
        os.close(self._log_fd)
        for blocks in self.blocks.values():
            for block in blocks:
                block.close()
        self.blocks, self._lent = {}, []
        erase(self.scratch)

    def _end_group(self) -> bool:
        """Kill all that the child started; whether nothing of it is left after five seconds at most."""
        signal_quietly(self.pid)
        if self.cgroup is not None:
            with contextlib.suppress(OSError):
                self.cgroup.kill()
        for _ in range(1000):
            if kill_group(self.pid):
                return self.cgroup is None or self.cgroup.remove()
            time.sleep(0.005)
        return False


def signal_quietly(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
