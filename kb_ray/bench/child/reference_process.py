"""The sandboxed process that runs tasks' references, spoken to one command at a time.

It serves many tasks, one after the other, and is retired after a number of them or at any fault. Whatever it
does wrong is the task's fault and is said as ReferenceFailed. What is asked of it, and what its answers are
good for, is decided in `references`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.cases import Case, Loaded, same_bytes
from kb_ray.bench.child.children import Child, Died, Raised, TimedOut
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.strides import duplicate
from kb_ray.bench.child.tree import opaque_types, tensor_refs
from kb_ray.records import Task

TASKS_PER_PROCESS = 200
_OTHER, _SIZED = "other weights", "sized"
"""Programs of the process beside those named by a task's key: the last task asked about in that way."""


class ReferenceFailed(Exception):
    """The task's own reference cannot be run. Nobody's fault but the task's: never the candidate's."""

    late = False
    """Whether all that is known is that it took too long."""


@dataclass(frozen=True)
class Answer:
    """What a reference returned; tensors are the judge's own."""

    tree: wire.Tree
    outputs: list[torch.Tensor]
    inputs_after: list[torch.Tensor] | None
    """The inputs as it left them, where it changed any."""
    flops: int


@dataclass(frozen=True)
class Reweighted:
    """What a task is constructed with under other weights, and its answer."""

    given_tree: wire.Tree
    given: list[torch.Tensor]
    answer: Answer


class ReferenceProcess:
    """One process at a time; thread-safe. Times are limited by the `timeout_s` of each call."""

    def __init__(self, zygote: Zygote, cuda: bool) -> None:
        self.zygote, self.cuda = zygote, cuda
        self.lock = threading.RLock()
        self._child: Child | None = None
        self.serial = 0
        """Number of the process: what was given to another one is gone."""
        self._served = 0

    def ready(self, loaded: Loaded, timeout_s: float, tf32: bool) -> None:
        """A living process that has this task loaded and constructed."""
        with self.lock:
            if self._child is not None and loaded.in_process == self.serial:
                return
            with self._own_fault():
                self._spawned()
                self._load(loaded, timeout_s, tf32)

    def _spawned(self) -> None:
        if self._served >= TASKS_PER_PROCESS:
            self.retire()
        if self._child is None:
            self._child = self.zygote.spawn()
            self.serial += 1

    def _load(self, loaded: Loaded, timeout_s: float, tf32: bool) -> None:
        self._served += 1
        self._ask(Kind.LOAD, timeout_s, **_load_request(loaded.key, loaded.task), tf32=tf32)
        tree, given = self._build(loaded.key, loaded.init_seed, timeout_s)
        if loaded.given_tree is None:
            loaded.given_tree, loaded.given = tree, given
        loaded.in_process = self.serial

    def _build(
        self, program: str, seed: int, timeout_s: float, unsettled: bool = False
    ) -> tuple[wire.Tree, list[torch.Tensor]]:
        request = {"program": program, "role": "reference", "seed": seed, "slot": "given", "unsettled": unsettled}
        tree = self._ask(Kind.BUILD, timeout_s, **request)["tree"]
        given = self._fetch("given", tree, timeout_s)
        self._free(["given"], timeout_s)
        return tree, given

    def draw(self, loaded: Loaded, seed: int, timeout_s: float) -> tuple[wire.Tree, list[torch.Tensor]]:
        """The task's own inputs, drawn under a seed."""
        with self.lock, self._own_fault():
            tree = self._ask(Kind.DRAW, timeout_s, program=loaded.key, seed=seed, slot="drawn")["tree"]
            drawn = self._fetch("drawn", tree, timeout_s)
            self._free(["drawn"], timeout_s)
            return tree, drawn

    def answer(self, loaded: Loaded, tree: wire.Tree, inputs: list[torch.Tensor], timeout_s: float) -> Answer:
        """What the reference makes of a private copy of `inputs`."""
        with self.lock, self._own_fault():
            return self._answer(loaded.key, tree, inputs, timeout_s, ledger=not loaded.flops)

    def _answer(
        self, program: str, tree: wire.Tree, inputs: list[torch.Tensor], timeout_s: float, ledger: bool
    ) -> Answer:
        child = self._living()
        child.put("inputs", tree, inputs, timeout_s)
        done = self._ask(
            Kind.CALL, timeout_s, program=program, inputs="inputs", outputs="outputs", ledger=ledger, ablate=False,
            refs=[], handle=b"",
        )  # fmt: skip
        if unknown := opaque_types(done["tree"]):
            raise ReferenceFailed(f"the reference returns {', '.join(unknown)}")
        outputs = self._fetch("outputs", done["tree"], timeout_s)
        held = child.held("inputs")
        kept = all(same_bytes(a, b) for a, b in zip(held, inputs, strict=True))
        after = None if kept else [duplicate(tensor) for tensor in held]
        self._free(["inputs", "outputs"], timeout_s)
        return Answer(done["tree"], outputs, after, _count(done.get("flops")))

    def oracle(
        self, loaded: Loaded, tree: wire.Tree, inputs: list[torch.Tensor], outputs: list[torch.Tensor], timeout_s: float
    ) -> list[torch.Tensor] | None:
        """The reference's answer in float64, or None where it does not run so or answers otherwise."""
        if not any(t.is_floating_point() for t in outputs):
            return None
        with self.lock, self._own_fault():
            child = self._living()
            try:
                child.put("oracle_inputs", tree, inputs, timeout_s)
                got = self._ask(
                    Kind.ORACLE, timeout_s, program=loaded.key, inputs="oracle_inputs", outputs="oracle"
                )["tree"]  # fmt: skip
                refs = tensor_refs(got)
                if [r.shape for r in refs] != [tuple(t.shape) for t in outputs]:
                    return None
                return self._fetch("oracle", got, timeout_s)
            except Raised:
                return None
            finally:
                if not child.broken:
                    self._free(["oracle_inputs", "oracle"], timeout_s)

    def reweighted(
        self, loaded: Loaded, seed: int, tree: wire.Tree, inputs: list[torch.Tensor], timeout_s: float,
        tf32: bool, unsettled: bool = False,
    ) -> Reweighted:  # fmt: skip
        """The task with other weights, and what it then makes of `inputs`.

        Drawn under another seed; `unsettled`: drawn as they are, but for those that begin as a constant.
        """
        with self.lock, self._own_fault():
            self._ask(Kind.LOAD, timeout_s, **_load_request(_OTHER, loaded.task), tf32=tf32)
            given_tree, given = self._build(_OTHER, seed, timeout_s, unsettled)
            return Reweighted(given_tree, given, self._answer(_OTHER, tree, inputs, timeout_s, ledger=False))

    def sizes(self, task: Task, timeout_s: float, limit: int) -> dict[str, int]:
        """Bytes of `inputs`, `weights` and `outputs` as far as they can be told without making them, up to `limit`."""
        with self.lock:
            try:
                with self._own_fault():
                    self._spawned()
                    self._ask(Kind.LOAD, timeout_s, **_load_request(_SIZED, task), tf32=False)
            except ReferenceFailed as failure:
                # To be late with that says nothing of sizes: it would be late to run, too.
                failure.late = False
                raise
        with self.lock, self._own_fault():
            said = self._ask(Kind.SIZES, timeout_s, program=_SIZED, limit=limit)["bytes"]
            return {str(name): _count(size) for name, size in said.items()} if isinstance(said, dict) else {}

    def put_timed(self, slot: str, case: Case, timeout_s: float) -> None:
        with self.lock, self._own_fault():
            self._living().put(slot, case.inputs_tree, case.inputs, timeout_s, case.plans)

    def time(self, loaded: Loaded, request: dict[str, Any], timeout_s: float) -> list[float]:
        """Event times (ms); `request` as `program.Server.time` wants it."""
        with self.lock, self._own_fault():
            times = self._ask(Kind.TIME, timeout_s, program=loaded.key, **request)["times_ms"]
            return [float(t) for t in times]

    def repeat(self, loaded: Loaded, request: dict[str, Any], timeout_s: float) -> None:
        with self.lock, self._own_fault():
            self._ask(Kind.REPEAT, timeout_s, program=loaded.key, **request)

    def free(self, slots: list[str], timeout_s: float) -> None:
        with self.lock, self._own_fault():
            if self._child is not None:
                self._free(slots, timeout_s)

    def holds(self, serial: int) -> bool:
        """Whether what was given to the process of this number is still with a living one."""
        with self.lock:
            return self._child is not None and self.serial == serial

    def retire(self) -> None:
        """End the process; tasks are loaded again into the next one."""
        with self.lock:
            if self._child is not None:
                self._child.kill()
            self._child, self._served = None, 0

    def _living(self) -> Child:
        if self._child is None:
            raise ReferenceFailed("the reference's process ended meanwhile")
        return self._child

    def _ask(self, kind: Kind, timeout_s: float, **request: Any) -> dict[str, Any]:
        return self._living().ask(kind, request, timeout_s)

    def _fetch(self, slot: str, tree: wire.Tree, timeout_s: float) -> list[torch.Tensor]:
        """The tensors of a slot of the process, copied into the judge's own memory."""
        child, refs = self._living(), list(tensor_refs(tree))
        if not refs:
            return []
        block = child.block(refs)
        try:
            request = {"slot": slot, "refs": refs, "handle": block.handle}
            if not child.ask(Kind.EXPORT, request, timeout_s, block.fds)["copied"]:
                raise ReferenceFailed(f"tensors of {slot} are not what the reference said they are")
            return [duplicate(t) for t in block.tensors]
        finally:
            block.close()

    def _free(self, slots: list[str], timeout_s: float) -> None:
        self._living().free(slots, timeout_s)

    @contextmanager
    def _own_fault(self) -> Iterator[None]:
        """Whatever the process does wrong is the task's fault, and ends that process if need be."""
        try:
            yield
        except Raised as error:
            # An asynchronous CUDA fault spoils the context for whatever comes next.
            if self.cuda or (self._child is not None and self._child.broken):
                self.retire()
            raise ReferenceFailed(f"the reference raised {_said(error)}") from error
        except (Died, TimedOut) as error:
            self.retire()
            what = "did not finish in time" if isinstance(error, TimedOut) else f"died ({error})"
            failed = ReferenceFailed(f"the reference {what}")
            failed.late = isinstance(error, TimedOut)
            raise failed from error


def _load_request(program: str, task: Task) -> dict[str, Any]:
    shapes = {k: [list(s.shape), s.dtype] for k, s in (task.input_shapes or {}).items()}
    return {
        "program": program, "role": "reference", "code": task.reference_code, "style": task.style,
        "entry_point": task.entry_point, "init_convention": task.init_convention, "input_shapes": shapes,
    }  # fmt: skip


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def _said(error: Raised) -> str:
    lines = str(error.info.get("message")).splitlines()
    return f"{error.info.get('type')}: {lines[0] if lines else 'without a message'}"
