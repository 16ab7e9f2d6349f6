"""The command loop of a sandboxed process: it runs a candidate's or a reference's code on command.

Answers hold value trees, byte counts and times, never a judgement; tensors go by shared buffers that the
judge owns. Nothing here is trusted: the loaded code shares this process and may change any of it. What
protects the verdict is that expected values, seeds of inputs and comparison are elsewhere. All imports are
at the top: a confined process cannot read kb_ray's files any more.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from kb_ray.bench.child import provenance, wire
from kb_ray.bench.child.buffers import attach_host
from kb_ray.bench.child.cuda_ipc import attach_cuda
from kb_ray.bench.child.frames import Channel, Frame, FrameError, Kind
from kb_ray.bench.child.loading import Program
from kb_ray.bench.child.message import pack, unpack
from kb_ray.bench.child.timing import timed_calls
from kb_ray.bench.child.tree import flatten, unflatten
from kb_ray.bench.child.values import TensorRef

FLUSH_BYTES = 256 << 20


class Slot:
    """A named group of tensors with the tree they belong in, and the mappings to close with it."""

    def __init__(self, tree: wire.Tree = None) -> None:
        self.tree = tree
        self.tensors: list[torch.Tensor] = []
        self.mappings: list[Any] = []
        self.original: list[torch.Tensor] = []
        """The tensors as they were put, where timing has to put them back before each call."""

    def value(self) -> Any:
        return unflatten(self.tree, self.tensors)

    def close(self) -> None:
        self.tensors, self.original = [], []
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
        self.commands: dict[int, Callable[[dict[str, Any], tuple[int, ...]], dict[str, Any]]] = {
            Kind.LOAD: self.load,
            Kind.BUILD: self.build,
            Kind.PUT: self.put,
            Kind.DRAW: self.draw,
            Kind.CALL: self.call,
            Kind.EXPORT: self.export,
            Kind.ORACLE: self.oracle,
            Kind.TIME: self.time,
            Kind.FREE: self.free,
        }

    def attach(self, refs: list[TensorRef], handle: bytes, fds: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
        if not self.cuda or not refs:
            return attach_host(refs, fds)
        return attach_cuda(refs, handle)

    def sync(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def load(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        torch.set_default_dtype(torch.float32)
        program = Program.load(request, self.scratch, self.cuda)
        self.programs[request["program"]] = program
        return {"entry": program.entry_name}

    def build(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        """Candidate: construct with the reference's arguments and weights. Reference: say what they are."""
        program = self.programs[request["program"]]
        if request["role"] == "reference":
            tree, tensors = program.build_reference(request["seed"])
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
            slot.tree = request["tree"]
        return {}

    def draw(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        value = self.programs[request["program"]].draw(request["seed"])
        slot = Slot()
        slot.tree, slot.tensors = flatten(value)
        self.slots[request["slot"]] = slot
        self.sync()
        return {"tree": slot.tree}

    def call(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        watch = provenance.WATCH
        before, operators = watch.launches.copy(), watch.operators.copy()
        inputs = self.slots[request["inputs"]].value()
        program = self.programs[request["program"]]
        started = time.perf_counter()
        if request["ledger"]:
            with provenance.Ledger():
                value = program.run(inputs)
        else:
            value = program.run(inputs)
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
        }

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
        fits = len(areas) == len(tensors) and all(
            a.dtype == t.dtype and a.shape == t.shape for a, t in zip(areas, tensors, strict=True)
        )
        if fits:
            for area, tensor in zip(areas, tensors, strict=True):
                torch.Tensor.copy_(area, tensor)
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
        program = self.programs[request["program"]]
        slots = [self.slots[name] for name in request["inputs"]]
        inputs = [slot.value() for slot in slots]
        for slot in slots if request["restore"] else ():
            slot.original = slot.original or [t.clone() for t in slot.tensors]
        before = provenance.WATCH.launches.total()

        def restore(index: int) -> None:
            for tensor, original in zip(slots[index].tensors, slots[index].original, strict=False):
                tensor.copy_(original)

        times, outputs = timed_calls(program.run, inputs, request["warmup"], request["trials"], self.flush, restore)
        for name, value in zip(request["outputs"], outputs, strict=True):
            slot = Slot()
            slot.tree, slot.tensors = flatten(value, canonical=True)
            self.slots[name] = slot
        return {"times_ms": times, "launches": provenance.WATCH.launches.total() - before}

    def free(self, request: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        for name in request["slots"]:
            if name in self.slots:
                self.slots.pop(name).close()
        return {}


def serve(channel: Channel, level: str, cuda: bool, state: provenance.State, scratch: str) -> None:
    """Answer commands until the judge closes the channel."""
    provenance.WATCH.state = state
    provenance.poison_allocations(True)
    server = Server(channel, level, cuda, scratch)
    if cuda:
        torch.cuda.set_device(0)
        torch.cuda.synchronize()
    channel.send(Kind.READY, pack(level=level))
    while True:
        try:
            frame = channel.recv()
        except FrameError:
            os._exit(0)
        channel.send(*_answer(server, frame))


def _answer(server: Server, frame: Frame) -> tuple[int, bytes]:
    try:
        return Kind.DONE, pack(**server.commands[frame.kind](unpack(frame.payload), frame.fds))
    # SystemExit and KeyboardInterrupt included: a candidate that raises them has failed, not finished.
    except BaseException as error:
        return Kind.RAISED, pack(**describe(error))


def describe(error: BaseException) -> dict[str, Any]:
    """What an exception says, bounded: type, message, and the last line of the loaded code on its way."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == provenance.WATCH.file]
    cause = error.__cause__
    if own and cause is not None and type(error).__name__ == "InterpreterError":
        own = [f for f in traceback.extract_tb(cause.__traceback__) if f.filename == provenance.WATCH.file] or own
    line = own[-1].lineno if own else getattr(error, "lineno", None)
    return {
        "type": type(error).__name__,
        "bases": [base.__name__ for base in type(error).__mro__[:8]],
        "cause": type(cause).__name__ if cause is not None else "",
        "message": _said(cause if type(error).__name__ == "InterpreterError" and cause else error)[:4000],
        "line": line if isinstance(line, int) else None,
        "trace": "".join(traceback.format_exception(error))[-6000:],
        "from_own_code": bool(own),
    }


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "its message could not be made"
