"""What the judge knows of every task: input sets, what the reference makes of them, and what speaks against it.

Cases live in the judge, by content of the task, and never reach a candidate's process except the inputs.
Seeds come from the system and are told to nobody. How the reference is run is `reference_process`.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Any

import torch

from kb_ray.bench.child import blame, gate, hidden
from kb_ray.bench.child.cases import Case, Loaded, finite, has_finite, mutates, same_bytes, size_of, task_key
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.inputs import NEW_SEED, Variant, instead_of, transform, variants
from kb_ray.bench.child.plans import Plan, plans_of
from kb_ray.bench.child.reference_process import Answer, ReferenceFailed, ReferenceProcess
from kb_ray.bench.child.tolerance import tolerances
from kb_ray.bench.protocol import BenchSettings
from kb_ray.records import Task
from kb_ray.tasks.quality import NOWHERE_FINITE

WEIGHTS = "weights"
"""Name of the hidden case in which weights that begin as a constant have moved off it."""
CACHED_BYTES = {True: 8 << 30, False: 2 << 30}
"""Of all tasks' cases together, on a GPU and on a CPU."""
TASKS_KEPT = 500
ORACLE_BYTES = 4 << 30
"""Cases larger than this get no float64 answer beside them: it would take four times their memory."""


class References:
    """All references of one judge. Thread-safe: one command at a time goes to the process."""

    def __init__(self, zygote: Zygote, cuda: bool) -> None:
        self.zygote, self.cuda = zygote, cuda
        self.process = ReferenceProcess(zygote, cuda)
        self._tasks: OrderedDict[str, Loaded] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, task: Task, settings: BenchSettings) -> Loaded:
        """The task, loaded, inspected and its size known; ReferenceFailed if its reference cannot be run."""
        with self._lock:
            key = task_key(task, settings)
            if key not in self._tasks:
                self._tasks[key] = Loaded(key, task, _seed())
            self._tasks.move_to_end(key)
            loaded = self._tasks[key]
            self._evict()
        with loaded.lock:
            if loaded.case_bytes is None:
                try:
                    self._inspect(loaded, settings)
                except ReferenceFailed as failure:
                    if not self.cuda or not blame.lacks_memory(str(failure)):
                        raise
                    # What tasks before this one had kept in the process went with it.
                    self._inspect(loaded, settings)
        return loaded

    def case(self, loaded: Loaded, index: int, settings: BenchSettings, first: Case | None = None) -> Case:
        """The task's input set number `index`. It is kept while there is room, except those of large tasks.

        `first` is set 0, from which others are derived. A family of inputs on which the reference fails or
        turns non-finite is replaced by another one.
        """
        with loaded.lock:
            if index in loaded.cases:
                return loaded.cases[index]
            variant = variants(settings.n_correctness)[index]
            case = self._make(loaded, variant, settings, None if index == 0 else first or loaded.cases.get(0))
            if not loaded.large:
                loaded.cases[index] = case
            return case

    def fresh(self, loaded: Loaded, settings: BenchSettings, near: Case | None = None) -> Case:
        """A case that nobody has seen before and that is not kept; `near`: nearly equal to that one."""
        with loaded.lock:
            case = self._make(loaded, variants(2)[1] if near else NEW_SEED, settings, near)
            case.plans = _planned(loaded, case.inputs)
            return case

    def hidden(self, loaded: Loaded, name: str, settings: BenchSettings, first: Case) -> Case | None:
        """A case of what the task does not promise (`shape`, `dtype`, `weights`); None where its reference refuses."""
        with loaded.lock:
            if name not in loaded.hidden:
                loaded.hidden[name] = self._make_hidden(loaded, name, settings, first)
            return loaded.hidden[name]

    def _make_hidden(self, loaded: Loaded, name: str, settings: BenchSettings, first: Case) -> Case | None:
        if name == WEIGHTS:
            return self._other_weights(loaded, settings, first)
        for tree, inputs in hidden.INPUTS[name](first, loaded.given, _seed()):
            try:
                case = self._run(loaded, Variant(name, name, True), tree, inputs, settings)
            except ReferenceFailed:
                continue
            if finite(case):
                return case
        return None

    def _other_weights(self, loaded: Loaded, settings: BenchSettings, first: Case) -> Case | None:
        """The first inputs under weights of which none is a constant that could be left out."""
        timeout_s, tree, inputs = settings.timeout_s, first.inputs_tree, first.inputs
        try:
            with self.process.lock:
                self.process.ready(loaded, timeout_s, settings.tf32)
                other = self.process.reweighted(
                    loaded, loaded.init_seed, tree, inputs, timeout_s, settings.tf32, unsettled=True
                )  # fmt: skip
        except ReferenceFailed:
            return None
        if _same(other.given, loaded.given):
            return None
        answer, variant = other.answer, Variant(WEIGHTS, WEIGHTS, False)
        case = Case(variant, tree, inputs, answer.tree, answer.outputs, answer.inputs_after, other.given)
        case.given_tree = other.given_tree
        case.tolerances = tolerances(case.outputs, None, [*inputs, *other.given], _rounded(loaded, settings))
        return case if finite(case) else None

    def sizes(self, task: Task, settings: BenchSettings, limit: int) -> dict[str, int]:
        """Bytes of `inputs`, `weights` and `outputs` of a task, as far as they can be told without making them.

        Above `limit` no more of them are looked for.
        """
        try:
            return self.process.sizes(task, settings.timeout_s, limit)
        except ReferenceFailed as failure:
            # Walking through some networks without values takes longer than running them: not known, so not failed.
            if failure.late:
                return {}
            raise

    def _inspect(self, loaded: Loaded, settings: BenchSettings) -> None:
        first = self._make(loaded, variants(1)[0], settings, None)
        loaded.input_bytes = size_of(first.inputs)
        second = self._make(loaded, NEW_SEED, settings, first)
        loaded.flags |= self._gate(loaded, first, second, settings)
        if not all(map(has_finite, first.outputs)):
            # Memory that was never written passes for such an answer.
            loaded.flags.add(NOWHERE_FINITE)
        loaded.case_bytes = first.bytes()
        if not loaded.large:
            loaded.cases[0] = first

    def _gate(self, loaded: Loaded, first: Case, second: Case, settings: BenchSettings) -> frozenset[str]:
        tree, timeout_s = first.inputs_tree, settings.timeout_s

        def answer(inputs: list[torch.Tensor]) -> list[torch.Tensor] | None:
            try:
                return self._answer(loaded, tree, inputs, settings).outputs
            except ReferenceFailed:
                return None

        def reweighted() -> list[torch.Tensor] | None:
            try:
                with self.process.lock:
                    self.process.ready(loaded, timeout_s, settings.tf32)
                    other = self.process.reweighted(
                        loaded, _seed(), tree, first.inputs, timeout_s, settings.tf32
                    )  # fmt: skip
            except ReferenceFailed:
                return None
            return None if _same(other.given, loaded.given) else other.answer.outputs

        return gate.inspect(first, second, answer, reweighted)

    def _make(self, loaded: Loaded, variant: Variant, settings: BenchSettings, first: Case | None) -> Case:
        try:
            case = self._drawn(loaded, variant, settings, first)
            if first is None or variant == NEW_SEED or finite(case) or not finite(first):
                return case
        except ReferenceFailed:
            if first is None or variant == NEW_SEED:
                raise
        return self._make(loaded, next(instead_of(variant)), settings, first)

    def _drawn(self, loaded: Loaded, variant: Variant, settings: BenchSettings, first: Case | None) -> Case:
        if first is None or variant.needs_new_draw:
            with self.process.lock:
                self.process.ready(loaded, settings.timeout_s, settings.tf32)
                tree, start = self.process.draw(loaded, _seed(), settings.timeout_s)
        else:
            tree, start = first.inputs_tree, first.inputs
        return self._run(loaded, variant, tree, transform(start, variant, _seed()), settings)

    def _answer(self, loaded: Loaded, tree: Any, inputs: list[torch.Tensor], settings: BenchSettings) -> Answer:
        with self.process.lock:
            self.process.ready(loaded, settings.timeout_s, settings.tf32)
            return self.process.answer(loaded, tree, inputs, settings.timeout_s)

    def _run(
        self, loaded: Loaded, variant: Variant, tree: Any, inputs: list[torch.Tensor], settings: BenchSettings
    ) -> Case:
        answer = self._answer(loaded, tree, inputs, settings)
        loaded.flops = loaded.flops or answer.flops
        case = Case(variant, tree, inputs, answer.tree, answer.outputs, answer.inputs_after, loaded.given)
        oracle = None
        if case.bytes() <= ORACLE_BYTES:
            with self.process.lock:
                self.process.ready(loaded, settings.timeout_s, settings.tf32)
                oracle = self.process.oracle(loaded, tree, inputs, case.outputs, settings.timeout_s)
        case.tolerances = tolerances(case.outputs, oracle, [*inputs, *loaded.given], _rounded(loaded, settings))
        return case

    def lend_for_timing(self, loaded: Loaded, cases: list[Case], settings: BenchSettings) -> None:
        """Give the process the inputs that it will be timed on."""
        with self.process.lock:
            self.process.ready(loaded, settings.timeout_s, settings.tf32)
            for name, case in zip(timed_slots(cases), cases, strict=True):
                self.process.put_timed(name, case, settings.timeout_s)

    def time(
        self, loaded: Loaded, cases: list[Case], warmup: int, trials: int, settings: BenchSettings, compiled: bool
    ) -> list[float]:
        """Event times (ms) of the reference over inputs lent before; `compiled`: through torch.compile."""
        request = calls_of(cases, compiled) | {"warmup": warmup, "trials": trials, "share": False}
        return self.process.time(loaded, request, settings.timeout_s)

    def repeat(
        self, loaded: Loaded, cases: list[Case], calls: int, settings: BenchSettings, compiled: bool = False
    ) -> None:
        """Call the reference so many times over inputs lent before, and wait for the last."""
        self.process.repeat(loaded, calls_of(cases, compiled) | {"calls": calls}, settings.timeout_s)

    def end_timing(self, cases: list[Case], settings: BenchSettings) -> None:
        self.process.free(timed_slots(cases), settings.timeout_s)

    def _evict(self) -> None:
        """Forget the tasks unused for longest, while they are too many or all cases together too large."""
        sizes = {key: sum(case.bytes() for case in loaded.kept()) for key, loaded in self._tasks.items()}
        total = sum(sizes.values())
        for key in list(self._tasks)[:-1]:
            if total <= CACHED_BYTES[self.cuda] and len(self._tasks) <= TASKS_KEPT:
                return
            total -= sizes[key]
            del self._tasks[key]


def timed_slots(cases: list[Case]) -> list[str]:
    """Where inputs of timed calls are kept: other evaluations have theirs in the reference's process too."""
    return [f"timed{case.serial}" for case in cases]


def calls_of(cases: list[Case], compiled: bool = False) -> dict[str, Any]:
    """What a process is asked for calls that take turns over inputs lent before, none of them looked at."""
    return {"inputs": timed_slots(cases), "restore": mutates(cases), "compiled": compiled, "looks": []}


def _planned(loaded: Loaded, inputs: list[torch.Tensor]) -> list[Plan]:
    """How such inputs may be changed: looked at once for all of a task that have these shapes."""
    kinds = tuple((tensor.dtype, tensor.shape) for tensor in inputs)
    if loaded.planned is None or loaded.planned[0] != kinds:
        loaded.planned = kinds, plans_of(inputs)
    return loaded.planned[1]


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(map(same_bytes, a, b))


def _rounded(loaded: Loaded, settings: BenchSettings) -> bool:
    """Whether outputs may come from products of TF32."""
    return settings.tf32 and loaded.flops > 0


def _seed() -> int:
    return secrets.randbelow(1 << 31)
