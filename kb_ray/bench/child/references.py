"""The reference side of a verdict: runs tasks' references in a sandboxed process and keeps what they answer.

One process serves many tasks, one after the other, and is retired after a number of them or at any
fault. What it answers (inputs, outputs, float64 oracle) lives in the judge, by content of the task, and
never reaches a candidate's process except the inputs. Seeds come from the system and are told to nobody.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.cases import Case, Loaded, close, finite, has_finite, mutates, same_bytes, task_key
from kb_ray.bench.child.children import Child, Died, Raised, TimedOut, refs_of
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.inputs import Variant, transform, variants
from kb_ray.bench.child.tree import opaque_types, tensor_refs
from kb_ray.bench.protocol import BenchSettings
from kb_ray.records import Task

TASKS_PER_PROCESS = 200
CACHED_BYTES = 2 << 30


class ReferenceFailed(Exception):
    """The task's own reference cannot be run. Nobody's fault but the task's: never the candidate's."""


class References:
    """All references of one judge. Thread-safe: one command at a time goes to the process."""

    def __init__(self, zygote: Zygote, cuda: bool) -> None:
        self.zygote, self.cuda = zygote, cuda
        self._child: Child | None = None
        self._serial = 0
        self._served = 0
        self._tasks: OrderedDict[str, Loaded] = OrderedDict()
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child else None

    def get(self, task: Task, settings: BenchSettings) -> Loaded:
        """The task, loaded; ReferenceFailed if its reference cannot be loaded or constructed."""
        with self._lock:
            key = task_key(task)
            if key not in self._tasks:
                self._tasks[key] = Loaded(key, task, _seed())
            self._tasks.move_to_end(key)
            loaded = self._tasks[key]
            self._evict()
        with loaded.lock:
            self._ensure(loaded, settings.timeout_s)
        return loaded

    def case(self, loaded: Loaded, index: int, settings: BenchSettings) -> Case:
        """The task's input set number `index`, made at its first use and kept while there is room.

        A family of inputs on which the reference fails or turns non-finite is replaced by a new draw.
        """
        with loaded.lock:
            if index not in loaded.cases:
                variant = variants(settings.n_correctness)[index]
                loaded.cases[index] = self._make(loaded, variant, settings, first=index == 0)
            return loaded.cases[index]

    def fresh(self, loaded: Loaded, settings: BenchSettings) -> Case:
        """A case that nobody has seen before and that is not kept."""
        with loaded.lock:
            return self._make(loaded, variants(2)[1], settings, first=False)

    def _make(self, loaded: Loaded, variant: Variant, settings: BenchSettings, first: bool) -> Case:
        plain = variants(2)[1]
        try:
            case = self._run(loaded, variant, settings.timeout_s, first)
        except ReferenceFailed:
            if variant.family == plain.family or first:
                raise
            return self._run(loaded, plain, settings.timeout_s, first)
        if not first and variant.family != plain.family and not finite(case):
            return self._run(loaded, plain, settings.timeout_s, first)
        return case

    def _run(self, loaded: Loaded, variant: Variant, timeout_s: float, first: bool) -> Case:
        with self._lock, self._own_fault():
            self._ensure(loaded, timeout_s)
            return self._measure(loaded, variant, timeout_s, first)

    @contextmanager
    def _own_fault(self) -> Iterator[None]:
        """Whatever the reference's process does wrong is the task's fault, and ends that process if need be."""
        try:
            yield
        except Raised as error:
            if self.cuda:  # an asynchronous CUDA fault spoils the context for whatever comes next
                self.retire()
            raise ReferenceFailed(f"the reference raised {_said(error)}") from error
        except (Died, TimedOut) as error:
            self.retire()
            what = "did not finish in time" if isinstance(error, TimedOut) else f"died ({error})"
            raise ReferenceFailed(f"the reference {what}") from error

    def _measure(self, loaded: Loaded, variant: Variant, timeout_s: float, first: bool) -> Case:
        child = self._child
        assert child is not None
        tree, drawn = self._draw(loaded, variant, timeout_s)
        inputs = transform(drawn, variant, _seed())
        child.put("inputs", tree, inputs, timeout_s)
        answer = self._call(loaded, "inputs", "outputs", timeout_s)
        after = [t.clone() for t in child.held("inputs")]
        mutated = any(not same_bytes(a, b) for a, b in zip(after, inputs, strict=True))
        outputs_tree = answer["tree"]
        if opaque_types(outputs_tree):
            raise ReferenceFailed(f"the reference returns {', '.join(opaque_types(outputs_tree))}")
        outputs = self._fetch("outputs", outputs_tree, timeout_s)
        case = Case(variant, tree, inputs, outputs_tree, outputs, after if mutated else None, loaded.given)
        case.oracle = self._oracle(loaded, case, timeout_s)
        if first:
            self._check_determinism(loaded, case, timeout_s)
            if not all(map(has_finite, case.outputs)):
                # Memory that was never written passes for such an answer.
                loaded.flags.add("reference_nowhere_finite")
        child.free(["drawn", "inputs", "outputs", "again", "oracle"], timeout_s)
        return case

    def _draw(self, loaded: Loaded, variant: Variant, timeout_s: float) -> tuple[wire.Tree, list[torch.Tensor]]:
        """What the variant starts from: a new draw of the task's inputs, or the first one."""
        assert self._child is not None
        first = loaded.cases.get(0)
        if first is not None and not variant.needs_new_draw:
            return first.inputs_tree, first.inputs
        drawn = self._child.ask(Kind.DRAW, {"program": loaded.key, "seed": _seed(), "slot": "drawn"}, timeout_s)
        return drawn["tree"], self._fetch("drawn", drawn["tree"], timeout_s)

    def _call(self, loaded: Loaded, inputs: str, outputs: str, timeout_s: float) -> dict[str, Any]:
        assert self._child is not None
        request = {
            "program": loaded.key, "inputs": inputs, "outputs": outputs, "ledger": False, "refs": [], "handle": b"",
        }  # fmt: skip
        return self._child.ask(Kind.CALL, request, timeout_s)

    def _fetch(self, slot: str, tree: wire.Tree, timeout_s: float) -> list[torch.Tensor]:
        """The tensors of a slot of the reference's process, copied into the judge's own memory."""
        child = self._child
        assert child is not None
        refs = list(tensor_refs(tree))
        if not refs:
            return []
        block = child.block(refs)
        try:
            request = {"slot": slot, "refs": refs, "handle": block.handle}
            if not child.ask(Kind.EXPORT, request, timeout_s, block.fds)["copied"]:
                raise ReferenceFailed(f"tensors of {slot} are not what the reference said they are")
            return [t.clone() for t in block.tensors]
        finally:
            block.close()

    def _oracle(self, loaded: Loaded, case: Case, timeout_s: float) -> list[torch.Tensor] | None:
        """The reference's answer in float64, or None where it does not run so or answers otherwise."""
        child = self._child
        assert child is not None
        if not any(t.is_floating_point() for t in case.outputs):
            return None
        try:
            child.put("oracle_inputs", case.inputs_tree, case.inputs, timeout_s)
            request = {"program": loaded.key, "inputs": "oracle_inputs", "outputs": "oracle"}
            tree = child.ask(Kind.ORACLE, request, timeout_s)["tree"]
            refs = tensor_refs(tree)
            if len(refs) != len(case.outputs):
                return None
            if any(r.shape != tuple(t.shape) for r, t in zip(refs, case.outputs, strict=True)):
                return None
            return self._fetch("oracle", tree, timeout_s)
        except Raised:
            return None
        finally:
            child.free(["oracle_inputs"], timeout_s)

    def _check_determinism(self, loaded: Loaded, case: Case, timeout_s: float) -> None:
        """Flag a task whose reference answers the same inputs differently."""
        child = self._child
        assert child is not None
        child.put("inputs", case.inputs_tree, case.inputs, timeout_s)
        tree = self._call(loaded, "inputs", "again", timeout_s)["tree"]
        if refs_of(case.outputs) != list(tensor_refs(tree)):
            loaded.flags.add("reference_not_deterministic")
            return
        again = self._fetch("again", tree, timeout_s)
        if not all(close(a, b) for a, b in zip(case.outputs, again, strict=True)):
            loaded.flags.add("reference_not_deterministic")

    def time(self, loaded: Loaded, cases: list[Case], warmup: int, trials: int, settings: BenchSettings) -> list[float]:
        """Event times (ms) of the reference over the inputs of `cases`, which stay there for more blocks."""
        with self._lock, self._own_fault():
            self._ensure(loaded, settings.timeout_s)
            child = self._child
            assert child is not None
            names = [f"timed{i}" for i in range(len(cases))]
            for name, case in zip(names, cases, strict=True):
                if name not in child.blocks:
                    child.put(name, case.inputs_tree, case.inputs, settings.timeout_s)
            request = {
                "program": loaded.key, "inputs": names, "outputs": [f"out_{n}" for n in names],
                "warmup": warmup, "trials": trials, "restore": mutates(cases),
            }  # fmt: skip
            return [float(t) for t in child.ask(Kind.TIME, request, settings.timeout_s)["times_ms"]]

    def end_timing(self, cases: list[Case], settings: BenchSettings) -> None:
        with self._lock:
            if self._child is not None:
                names = [f"timed{i}" for i in range(len(cases))]
                self._child.free(names + [f"out_{n}" for n in names], settings.timeout_s)

    def _ensure(self, loaded: Loaded, timeout_s: float) -> None:
        """A living process that has this task loaded and constructed."""
        with self._lock:
            if self._served >= TASKS_PER_PROCESS:
                self.retire()
            if self._child is None:
                self._child = self.zygote.spawn()
                self._serial += 1
            if loaded.in_process == self._serial:
                return
            with self._own_fault():
                self._load(loaded, timeout_s)

    def _load(self, loaded: Loaded, timeout_s: float) -> None:
        child, task = self._child, loaded.task
        assert child is not None
        self._served += 1
        shapes = {k: [list(s.shape), s.dtype] for k, s in (task.input_shapes or {}).items()}
        request = {
            "program": loaded.key, "role": "reference", "code": task.reference_code, "style": task.style,
            "entry_point": task.entry_point, "init_convention": task.init_convention, "input_shapes": shapes,
        }  # fmt: skip
        child.ask(Kind.LOAD, request, timeout_s)
        built = child.ask(
            Kind.BUILD,
            {"program": loaded.key, "role": "reference", "seed": loaded.init_seed, "slot": "given"},
            timeout_s,
        )
        if loaded.in_process == -1:
            loaded.given_tree = built["tree"]
            loaded.given = self._fetch("given", built["tree"], timeout_s)
        child.free(["given"], timeout_s)
        loaded.in_process = self._serial

    def retire(self) -> None:
        """End the process; tasks are loaded again into the next one."""
        with self._lock:
            if self._child is not None:
                self._child.kill()
            self._child, self._served = None, 0

    def _evict(self) -> None:
        """Drop the cases of the tasks unused for longest, while all together are too large."""
        total = sum(case.bytes() for loaded in self._tasks.values() for case in loaded.cases.values())
        for key in list(self._tasks)[:-1]:
            if total <= CACHED_BYTES:
                return
            total -= sum(case.bytes() for case in self._tasks.pop(key).cases.values())


def _seed() -> int:
    return secrets.randbelow(1 << 31)


def _said(error: Raised) -> str:
    return f"{error.info.get('type')}: {str(error.info.get('message')).splitlines()[:1]}"
