"""Whether this judge's device may be trusted with the next verdict, and the one line that says why not.

After an ending that a sick GPU could have caused, a canary (a kernel known to be right) runs in a fresh process
and the memory in use is compared with what it was; meanwhile verdicts wait. The driver's own reports (Xid)
count at once. What is found wrong stays wrong until the judge is started anew. Does not know the pool, which
takes the worker out, nor what a verdict says.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kb_ray.bench.child import canary
from kb_ray.bench.child.children import Child, refs_of
from kb_ray.bench.child.endings import Died, Raised, TimedOut
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Kind
from kb_ray.errors import InfraError
from kb_ray.records import Status

CANARY_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 120.0
MEMORY_RETURN_S = 2.0
MEMORY_SLACK_BYTES = 512 << 20
"""What the judge's own context and libraries may grow by without being reported."""
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of a program on the GPU and their clean-up: a candidate makes them at will, the GPU is sound."""
SUSPICIOUS = frozenset({Status.ILLEGAL_ACCESS, Status.TIMEOUT, Status.CRASH, Status.INFRA_ERROR})
"""Endings that a sick GPU could have caused."""

Check = Callable[[], str | None]
"""Looks at the device; None where all is well, else one line."""

log = logging.getLogger("kb_ray.judge")


def xid_reason(xid: int) -> str | None:
    """What an Xid says against the GPU; None where it tells of a program's fault only."""
    return None if xid in APPLICATION_XIDS else f"the driver reported Xid {xid}"


def memory_reason(nobodys: int, baseline: int) -> str | None:
    """What memory says against the GPU that is in use and that no living process is known to hold, now and when the
    judge started; in bytes."""
    lost = nobodys - baseline
    if lost <= MEMORY_SLACK_BYTES:
        return None
    return f"{lost / (1 << 30):.1f} GiB of GPU memory were not returned by processes that have ended"


class Health:
    """The state of one device. Thread-safe. `checks` run in order in a thread of their own."""

    def __init__(self, checks: list[Check]) -> None:
        self._checks = checks
        self._reason: str | None = None
        self._suspected = 0
        self._checked = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="health", daemon=True).start()

    def admit(self, suspicious: bool = False) -> str | None:
        """Whether a verdict may be given: None, or why not. Waits for checks under way.

        `suspicious`: this verdict may be given, and the device is checked before any other is.
        """
        with self._changed:
            if not self._changed.wait_for(self._settled, SETTLE_TIMEOUT_S):
                self._reason = "a check of the device did not end"
            if self._reason is None and suspicious:
                self._suspected += 1
                self._changed.notify_all()
            return self._reason

    def report(self, reason: str) -> None:
        """Something was seen to be wrong: no further verdict is given."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def _settled(self) -> bool:
        return self._reason is not None or self._checked == self._suspected

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._checked < self._suspected)
                upto = self._suspected
            reason = first_failure(self._checks)
            with self._changed:
                self._reason = self._reason or reason
                self._checked = upto
                self._changed.notify_all()


def first_failure(checks: list[Check]) -> str | None:
    """What the first check to find something says; a check that fails itself has found something."""
    for check in checks:
        try:
            reason = check()
        except Exception as error:
            log.exception("a check of the device failed")
            reason = f"a check of the device failed ({type(error).__name__}: {error})"[:300]
        if reason is not None:
            return reason
    return None


def canary_passes(zygote: Zygote, shared: Callable[[], Any]) -> str | None:
    """Run the canary in a fresh sandboxed process, as candidates run; `shared()`: the device's slot."""
    child: Child | None = None
    try:
        with shared():
            child = zygote.spawn()
            right = _doubled(child)
    except (Died, Raised, TimedOut, InfraError) as error:
        if not zygote.alive:
            return None  # the judge ends for want of its zygote; that says nothing about the device
        return f"the canary kernel failed ({type(error).__name__}: {error})"[:300]
    finally:
        if child is not None:
            child.kill()
    return None if right else "the canary kernel gave a wrong answer"


def _doubled(child: Child) -> bool:
    device = "cuda" if child.owner.cuda else "cpu"
    x = torch.arange(4096, dtype=torch.float32, device=device)
    [ref] = refs_of([x])
    source = Path(canary.__file__).read_text()
    load = {"program": "canary", "role": "candidate", "code": source, "style": "function"}
    child.ask(Kind.LOAD, load, CANARY_TIMEOUT_S)
    child.ask(
        Kind.BUILD,
        {"program": "canary", "role": "candidate", "slot": "", "seed": 0, "n_inputs": 1},
        CANARY_TIMEOUT_S,
    )
    child.put("x", [ref], [x], CANARY_TIMEOUT_S)
    block = child.block([ref])
    try:
        call = {
            "program": "canary", "inputs": "x", "outputs": "out", "ledger": False,
            "refs": [ref], "handle": block.handle,
        }  # fmt: skip
        child.ask(Kind.CALL, call, CANARY_TIMEOUT_S, block.fds)
        return bool(torch.equal(block.tensors[0], x * 2))
    finally:
        block.close()


class Memory:
    """Whether GPU memory comes back, looked at only while no candidate is alive.

    `used`: bytes in use, by whomever. `own`: bytes of processes that live. Where the driver does not say whose memory
    it is, only the judge's own is known, and what others take on the same GPU looks like memory that was lost.
    Either is None where nobody tells.
    """

    def __init__(self, used: Callable[[], int | None], own: Callable[[], int | None], idle: Callable[[], bool]) -> None:
        self._used, self._own, self._idle = used, own, idle
        self._baseline = self._nobodys()

    def returned(self, release: Callable[[], None]) -> str | None:
        """`release`: end the process of references, whose memory may not be known; called only if there is a doubt."""
        end = time.monotonic() + MEMORY_RETURN_S
        released = False
        while self._baseline is not None and self._idle():
            nobodys = self._nobodys()
            reason = None if nobodys is None else memory_reason(nobodys, self._baseline)
            if reason is None:
                return None
            if not released:
                release()
                released, end = True, time.monotonic() + MEMORY_RETURN_S
            elif time.monotonic() > end:
                return reason if self._idle() else None
            time.sleep(0.05)
        return None

    def _nobodys(self) -> int | None:
        # In this order: a process that starts in between makes it less, and less is no loss.
        used = self._used()
        own = self._own()
        return None if used is None or own is None else used - own
