"""The command loop of a sandboxed process: it runs a candidate's or a reference's code on command.

Answers hold value trees, byte counts and times, never a judgement; tensors go by shared buffers that the
judge owns. Nothing here is trusted: the loaded code shares this process and may change any of it. What
protects the verdict is that expected values, seeds of inputs and comparison are elsewhere. All imports are
at the top: a confined process cannot read kb_ray's files any more.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from kb_ray.bench.child import provenance, wire
from kb_ray.bench.child.buffers import attach_host
from kb_ray.bench.child.cuda_ipc import attach_cuda, persisting_l2, reset_persisting_l2
from kb_ray.bench.child.defaults import Defaults
from kb_ray.bench.child.frames import Channel, Kind
from kb_ray.bench.child.loading import Program
from kb_ray.bench.child.plans import Plan, heard
from kb_ray.bench.child.rotation import Rotation
from kb_ray.bench.child.sizing import estimate
from kb_ray.bench.child.strides import fill_alike
from kb_ray.bench.child.timing import Looks, own_share, repeated_calls, timed_calls
from kb_ray.bench.child.tree import dtype_name, flatten, unflatten
from kb_ray.bench.child.values import TensorRef

FLUSH_BYTES = 256 << 20
MAX_LOOKED_AT = 8
"""Tensors handed to launches that may be looked at for a finished result, at most."""
HOARD_BYTES = 1 << 30
"""Freed GPU memory that a process may keep to itself for later; others need the rest."""


class Slot:
    """A named group of tensors with the tree they belong in, how they may be changed, and mappings to close with it."""

    def __init__(self, tree: wire.Tree = None) -> None:
        self.tree = tree
        self.tensors: list[torch.Tensor] = []
        self.mappings: list[Any] = []
        self.plans: list[Plan] = []

    def value(self) -> Any:
        return unflatten(self.tree, self.tensors)

    def close(self) -> None:
        self.tensors = []
        for mapping in self.mappings:
            mapping.close()


class Server:
    """State of one sandboxed process: loaded programs by key, slots by name."""

    def __init__(self, channel: Channel, level: str, cuda: bool, scratch: str) -> None:
        self.channel = channel
        self.level = level
        self.cuda = cuda
        self.scratch = scratch
        self.programs: dict[str, Program] = {}
        self.slots: dict[str, Slot] = {}
        self.flush: torch.Tensor | None = None
        self.rotation: tuple[list[str], Rotation] | None = None
        """Slots that are timed, and the memory in which they take turns."""
        self.commands: dict[int, Callable[[dict[str, Any], tuple[int, ...]], dict[str, Any]]] = {
            Kind.LOAD: self.load,
            Kind.BUILD: self.build,
            Kind.PUT: self.put,
            Kind.DRAW: self.draw,
            Kind.CALL: self.call,
            Kind.EXPORT: self.export,
            Kind.ORACLE: self.oracle,
            Kind.TIME: self.time,
            Kind.REPEAT: self.repeat,
            Kind.SIZES: self.sizes,
            Kind.FREE: self.free,
        }

    def answer(self, kind: int, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        """What a command gives. Each program runs under the defaults that it has set itself, and sets no others'."""
        name = request.get("program", "")
        known = self.programs.get(name) if kind != Kind.LOAD else None
        (known.defaults if known else Defaults()).apply()
        try:
            return self.commands[kind](request, fds)
        finally:
            if name in self.programs:
                self.programs[name].defaults = Defaults.now()

    def attach(self, refs: list[TensorRef], handle: bytes, fds: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
        if not self.cuda or not refs:
            return attach_host(refs, fds)
        return attach_cuda(refs, handle)

    def sync(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def load(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        allow_tf32(bool(request.get("tf32")))
        program = Program.load(request, self.scratch, self.cuda)
        self.programs[request["program"]] = program
        return {"entry": program.entry_name}

    def build(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        """Candidate: construct with the reference's arguments and weights. Reference: say what they are."""
        program = self.programs[request["program"]]
        if request["role"] == "reference":
            tree, tensors = program.build_reference(request["seed"], bool(request.get("unsettled")))
            self.slots[request["slot"]] = slot = Slot(tree)
            slot.tensors = tensors
            return {"tree": tree}
        given = self.slots[request["slot"]].value() if request["slot"] else {}
        program.build_candidate(given, request["seed"], request["n_inputs"])
        self.sync()
        return {}

    def put(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        if request["first"] and request["slot"] in self.slots:
            self.slots.pop(request["slot"]).close()
        slot = self.slots.setdefault(request["slot"], Slot())
        tensors, mappings = self.attach(request["refs"], request["handle"], fds)
        slot.tensors += tensors
        slot.mappings += mappings
        if request["last"]:
            slot.tree, slot.plans = request["tree"], heard(request["plans"])
        return {}

    def draw(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        value = self.programs[request["program"]].draw(request["seed"])
        slot = Slot()
        slot.tree, slot.tensors = flatten(value)
        self.slots[request["slot"]] = slot
        self.sync()
        return {"tree": slot.tree}

    def sizes(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        """Bytes that a loaded reference would take; nothing of it is made."""
        return {"bytes": dict(estimate(self.programs[request["program"]], request["limit"]))}

    def call(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        watch = provenance.WATCH
        before, operators, watch.flops = watch.launches.copy(), watch.operators.copy(), 0
        inputs = self.slots[request["inputs"]].value()
        started = time.perf_counter()
        value = self._run(request, inputs)
        self.sync()
        seconds = time.perf_counter() - started
        slot = Slot()
        slot.tree, slot.tensors = flatten(value, canonical=True)
        self.slots[request["outputs"]] = slot
        copied = self._copy_out(slot.tensors, request["refs"], request["handle"], fds)
        return {
            "tree": slot.tree,
            "copied": copied,
            "seconds": seconds,
            "launches": dict(watch.launches - before),
            "operators": dict(watch.operators - operators),
            "inside": dict(watch.inside),
            "flops": watch.flops,
            "handed": self._keep_handed(request) if request.get("ablate") else None,
        }

    def _run(self, request: dict[str, Any], inputs: list[Any]) -> Any:
        program, watch = self.programs[request["program"]], provenance.WATCH
        watch.ablated, watch.noise, watch.handed = bool(request.get("ablate")), bool(request.get("noise")), []
        try:
            with provenance.Ledger() if request["ledger"] else nullcontext():
                return program.run(inputs)
        finally:
            watch.ablated = False

    def _keep_handed(self, request: dict[str, Any]) -> wire.Tree:
        """What launches that did nothing were given, as far as it could be a result: the tree of slot `handed`."""
        program, wanted = self.programs[request["program"]], {(r.dtype, math.prod(r.shape)) for r in request["refs"]}
        known = {address(t) for t in (*self.slots[request["inputs"]].tensors, *program.weights())}
        found = {address(t): t for t in provenance.WATCH.handed if (dtype_name(t.dtype), t.numel()) in wanted}
        slot = self.slots["handed"] = Slot()
        slot.tree, slot.tensors = flatten(
            [t for at, t in found.items() if at not in known][:MAX_LOOKED_AT], canonical=True
        )
        provenance.WATCH.handed = []
        return slot.tree

    def export(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        tensors = self.slots[request["slot"]].tensors
        return {"copied": self._copy_out(tensors, request["refs"], request["handle"], fds)}

    def _copy_out(
        self, tensors: list[torch.Tensor], refs: list[TensorRef], handle: bytes, fds: tuple[int, ...]
    ) -> bool:
        """Copy `tensors` into the judge's block if they have exactly the dtypes and shapes asked for."""
        if not refs and not fds:
            return True
        areas, mappings = self.attach(refs, handle, fds)
        fits = fill_alike(areas, tensors)
        self.sync()
        areas = []
        for mapping in mappings:
            mapping.close()
        return fits

    def oracle(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        value = self.programs[request["program"]].run_double(self.slots[request["inputs"]].value())
        slot = Slot()
        slot.tree, slot.tensors = flatten(value, canonical=True)
        self.slots[request["outputs"]] = slot
        self.sync()
        return {"tree": slot.tree}

    def time(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        """Event times of `trials` calls over rotating inputs, the L2 cache flushed before each."""
        if self.flush is None:
            self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        run, inputs, looks = self._rotating(request)
        reset_persisting_l2()
        before = provenance.WATCH.launches.total()
        times, trees = timed_calls(run, inputs, request["warmup"], request["trials"], self.flush, looks)
        launches = provenance.WATCH.launches.total() - before
        share = own_share(run, inputs, self.flush) if request.get("share") else None
        told = {"times_ms": times, "launches": launches, "share": share, "persisting": persisting_l2()}
        return told | {"trees": trees}

    def repeat(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        """Plain calls one after the other, for whoever holds a clock of their own."""
        run, inputs, looks = self._rotating(request)
        return {"trees": repeated_calls(run, inputs, request["calls"], looks)}

    def _rotating(self, request: dict[str, Any]) -> tuple[Callable[[Any], Any], Rotation, Looks]:
        """What is called again and again, on what, and where the outputs of which calls go."""
        program, names = self.programs[request["program"]], request["inputs"]
        if self.rotation is None or self.rotation[0] != names:
            slots = [self.slots[name] for name in names]
            self.rotation = names, Rotation(slots, mutated=bool(request["restore"]))
        areas = self.slots[request["looked"]].tensors if request["looks"] else []
        looks = {call: areas[first:end] for call, first, end in request["looks"]}
        return program.run_compiled if request.get("compiled") else program.run, self.rotation[1], looks

    def free(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        """Forget slots. Raises where the GPU has failed meanwhile."""
        self.sync()
        for name in request["slots"]:
            if name in self.slots:
                self.slots.pop(name).close()
            if self.rotation is not None and name in self.rotation[0]:
                self.rotation = None
        if self.cuda and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > HOARD_BYTES:
            torch.cuda.empty_cache()
        return {}


def address(tensor: torch.Tensor) -> int:
    """Where the memory begins that a tensor is a part or view of."""
    return int(tensor.untyped_storage().data_ptr())


def allow_tf32(allowed: bool) -> None:
    """Whether this process may round float32 factors to TF32, in PyTorch and in Triton's products alike."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    os.environ["TRITON_F32_DEFAULT"] = "tf32" if allowed else "ieee"
