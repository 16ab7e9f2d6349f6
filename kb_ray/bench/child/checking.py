"""One checked call of a candidate: inputs in, output bytes out, compared with what the reference answered.

Knows nothing of stages or verdicts: it says what one call was worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kb_ray.bench.child import blame, wire
from kb_ray.bench.child.cases import Case, same_bytes
from kb_ray.bench.child.children import Child, refs_of
from kb_ray.bench.child.compare import compare
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.inputs import AT_OLD_ADDRESS
from kb_ray.bench.child.tree import dtype_of, opaque_types, tensor_refs, unflatten
from kb_ray.records import ErrorDetail, Status

MAX_COUNTED = 200
MAX_COUNT = 1 << 40
"""Of one name in one call: sums of them still fit the 64 bits that traces have for them."""


class Place(NamedTuple):
    """Where one call's inputs and outputs are kept in the child."""

    inputs: str
    outputs: str
    used: bool = False
    """The inputs go into memory that held others before."""
    keep: bool = False
    """Both are held to the end: a later call must not change them."""
    keep_inputs: bool = False
    """The memory of the inputs is used again."""


def place_of(index: int, n: int) -> Place:
    """Where input set `index` of `n` goes: one into memory that held another before (new values, old address)."""
    if index == 0:
        return Place("case0", "out0", keep=True)
    if index == AT_OLD_ADDRESS:
        return Place(f"case{AT_OLD_ADDRESS - 2}", f"out{index}", used=True)
    return Place(f"case{index}", f"out{index}", keep_inputs=index == AT_OLD_ADDRESS - 2 and n > AT_OLD_ADDRESS)


@dataclass(frozen=True)
class Checked:
    """What one call was worth; `error` is None where it passed."""

    status: Status
    error: ErrorDetail | None
    launches: dict[str, int]
    operators: dict[str, int]
    inside: dict[str, int]
    """Torch operators called by kernels themselves."""


def check_call(child: Child, program: str, case: Case, place: Place, timeout_s: float) -> Checked:
    """Call the candidate on a private copy of the case's inputs and compare what comes back.

    The output block is poisoned beforehand. The child's exceptions (Raised, Died, TimedOut) pass through.
    """
    if place.used and refs_of(child.held(place.inputs)) == refs_of(case.inputs):
        child.refill(place.inputs, case.inputs)
    else:
        child.put(place.inputs, case.inputs_tree, case.inputs, timeout_s)
    refs = refs_of(case.outputs)
    with poisoned(child, refs) as block:
        answer = call(child, program, place.inputs, place.outputs, block, timeout_s)
        launches, operators = as_counts(answer.get("launches")), as_counts(answer.get("operators"))
        with child.sharing():
            status, error = _judge(child, case, place.inputs, answer, block)
    if not place.keep:
        child.free([place.outputs] + ([] if place.keep_inputs else [place.inputs]), timeout_s)
    return Checked(status, error, launches, operators, as_counts(answer.get("inside")))


def call(
    child: Child, program: str, inputs: str, outputs: str, block: Any, timeout_s: float,
    ablate: bool = False, noise: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run the candidate once; `ablate`: its kernels do nothing; `noise`: but to fill fresh memory with something."""
    request = {
        "program": program, "inputs": inputs, "outputs": outputs, "ledger": True, "ablate": ablate, "noise": noise,
        "refs": list(block.refs), "handle": block.handle,
    }  # fmt: skip
    return child.ask(Kind.CALL, request, timeout_s, block.fds)


@contextmanager
def poisoned(child: Child, refs: list[wire.TensorRef]) -> Iterator[Any]:
    """A block of the judge's for outputs like `refs`, holding nothing that could be right."""
    with child.sharing():
        block = child.block(refs)
    try:
        yield block
    finally:
        with child.sharing():
            block.close()


def _judge(
    child: Child, case: Case, name: str, answer: dict[str, Any], block: Any
) -> tuple[Status, ErrorDetail | None]:
    if not child.guards_intact(name) or not block.guards_intact():
        message = "memory outside of the inputs and outputs was written"
        return Status.ILLEGAL_ACCESS, blame.detail(Status.ILLEGAL_ACCESS, message)
    got_tree = answer.get("tree")
    wrong = _compare(case, got_tree, block.tensors, bool(answer.get("copied")))
    if wrong is not None:
        return wrong
    if not _inputs_kept(case, child.held(name)):
        message = "an input tensor was changed, which the reference leaves as it is"
        return Status.MUTATED_INPUT, blame.detail(Status.MUTATED_INPUT, message)
    return Status.OK, None


def _compare(
    case: Case, got_tree: wire.Tree, tensors: list[torch.Tensor], copied: bool
) -> tuple[Status, ErrorDetail] | None:
    """None where the output is the expected one. Tensors are looked at only if they are all there."""
    unknown = opaque_types(got_tree)
    if unknown:
        message = f"the output holds a {unknown[0]}, which is neither tensor nor plain value"
        return Status.WRONG_STRUCTURE, blame.detail(Status.WRONG_STRUCTURE, message)
    try:
        return _compare_readable(case, got_tree, tensors, copied)
    except wire.WireError as error:
        # Only a forged answer names dtypes that do not exist or tensors that were not sent.
        return Status.WRONG_STRUCTURE, blame.detail(Status.WRONG_STRUCTURE, f"the output makes no sense: {error}")


def _compare_readable(
    case: Case, got_tree: wire.Tree, tensors: list[torch.Tensor], copied: bool
) -> tuple[Status, ErrorDetail] | None:
    got_refs = tensor_refs(got_tree)
    if copied and [(r.dtype, r.shape) for r in got_refs] == [(r.dtype, r.shape) for r in refs_of(case.outputs)]:
        got = unflatten(got_tree, tensors)
    else:
        # Not what was expected, so nothing was copied: shapes and dtypes alone decide.
        got = unflatten(got_tree, [hollow(ref) for ref in got_refs])
    comparison = compare(case.expected(), got, case.tolerances, inputs=[*case.inputs, *case.weights])
    if comparison.status is Status.OK:
        return None
    assert comparison.error is not None
    return comparison.status, comparison.error


def earlier_result_kept(child: Child, case: Case, timeout_s: float) -> ErrorDetail | None:
    """What is wrong if the first call's output no longer holds after all later calls; None if it does."""
    wrong = _wrong_in(child, "out0", case, timeout_s)
    if wrong is None:
        return None
    message = "a result changed after later calls: each call must return memory of its own"
    return wrong.model_copy(update={"message": message, "detail": wrong.message})


def wrong_with(case: Case, tree: wire.Tree, tensors: list[torch.Tensor]) -> ErrorDetail | None:
    """What is wrong with an output for this case, built like `tree`; None if nothing is."""
    wrong = _compare(case, tree, tensors, copied=True)
    return wrong[1] if wrong else None


def _wrong_in(child: Child, slot: str, case: Case, timeout_s: float) -> ErrorDetail | None:
    """What is wrong with the outputs that the child holds under a name."""
    with poisoned(child, refs_of(case.outputs)) as block:
        if not fetched(child, slot, block, timeout_s):
            return blame.detail(Status.MISMATCH, "it has other shapes or dtypes now")
        with child.sharing():
            return wrong_with(case, case.outputs_tree, block.tensors)


def fetched(child: Child, slot: str, block: Any, timeout_s: float) -> bool:
    """Whether the tensors of a slot are such as the block is for; they are copied into it then."""
    request = {"slot": slot, "refs": list(block.refs), "handle": block.handle}
    return bool(child.ask(Kind.EXPORT, request, timeout_s, block.fds).get("copied"))


def hollow(ref: wire.TensorRef) -> torch.Tensor:
    """A tensor of this dtype and shape that takes no memory.

    The shape is the candidate's word: one that no tensor can have becomes an empty tensor of as many
    dimensions, which differs from every expected shape just as well.
    """
    one = torch.zeros((), dtype=dtype_of(ref.dtype))
    try:
        return one.expand(ref.shape)
    except (RuntimeError, TypeError, OverflowError):
        return torch.zeros((0,) * (len(ref.shape) + 1), dtype=one.dtype)


def _inputs_kept(case: Case, now: list[torch.Tensor]) -> bool:
    """Whether the inputs are as they were, or changed just as the reference changes them."""
    for i, (before, after) in enumerate(zip(case.inputs, now, strict=True)):
        if same_bytes(before, after):
            continue
        if case.inputs_after is None or same_bytes(case.inputs_after[i], before):
            return False
        if compare(case.inputs_after[i], after).status is not Status.OK:
            return False
    return True


def as_counts(value: wire.Tree) -> dict[str, int]:
    """Counts as a child reports them, bounded and cleaned: names to positive integers."""
    if not isinstance(value, dict):
        return {}
    pairs = list(value.items())[:MAX_COUNTED]
    return {blame.clean(str(k)[:100]): min(v, MAX_COUNT) for k, v in pairs if type(v) is int and v > 0}
