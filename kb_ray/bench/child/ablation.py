"""What is left of a candidate when its kernels do nothing: if the right answer is, something else computed it.

One call with launches of the candidate's own kernels replaced by nothing, over memory filled with NaN. The
output must come out wrong, and no tensor that a kernel was handed may hold the answer already (a kernel that
merely copies what PyTorch computed). What is seen comes from the candidate's process: it convicts, and never
acquits. Does not know what the verdict is made of it.
"""

from __future__ import annotations

import math

import torch

from kb_ray.bench.child import wire
from kb_ray.bench.child.cases import Case
from kb_ray.bench.child.checking import call, fetched, poisoned
from kb_ray.bench.child.children import Child, refs_of
from kb_ray.bench.child.compare import compare
from kb_ray.bench.child.tolerance import Tolerance, chunks, is_inexact, wrong_elements
from kb_ray.bench.child.tree import tensor_refs
from kb_ray.records import Status


def not_computed_by_kernels(
    child: Child, program: str, case: Case, torch_computes: bool, timeout_s: float
) -> str | None:
    """What was found, as one line for the model, or None. The child's exceptions pass through.

    `torch_computes`: the candidate was seen to use operators that compute. Then kernels are also replaced by
    ones that write some number, so that a result to which they add nothing shows too.
    """
    for noise in (False, True) if torch_computes else (False,):
        child.put("ablated", case.inputs_tree, case.inputs, timeout_s)
        found = _ablated(child, program, case, noise, timeout_s)
        child.free(["ablated", "ablated_out", "handed"], timeout_s)
        if found is not None:
            return found
    return None


def _ablated(child: Child, program: str, case: Case, noise: bool, timeout_s: float) -> str | None:
    with poisoned(child, refs_of(case.outputs)) as block:
        answer = call(child, program, "ablated", "ablated_out", block, timeout_s, ablate=True, noise=noise)
        with child.sharing():
            left = [bool(answer.get("copied")) and _right(case, i, got) for i, got in enumerate(block.tensors)]
    if not left:
        return None
    if all(left):
        return "the output is right even when the kernels' launches are left out: something else computes it"
    handed = _handed(child, case, answer.get("handed"), timeout_s)
    if all(a or b for a, b in zip(left, handed, strict=True)):
        return "the kernels are handed the finished result: PyTorch computes it, and they only copy it"
    return None


def _handed(child: Child, case: Case, tree: wire.Tree, timeout_s: float) -> list[bool]:
    """For each output, whether one of the tensors that kernels were handed holds it already."""
    refs = list(tensor_refs(tree)) if isinstance(tree, list) else []
    wanted = {(ref.dtype, math.prod(ref.shape)) for ref in refs_of(case.outputs)}
    if not refs or not all((ref.dtype, math.prod(ref.shape)) in wanted for ref in refs):
        return [False] * len(case.outputs)
    with poisoned(child, refs) as block:
        if not fetched(child, "handed", block, timeout_s):
            return [False] * len(case.outputs)
        with child.sharing():
            return [
                any(_right(case, i, got) for got in block.tensors if _alike(got, output))
                for i, output in enumerate(case.outputs)
            ]


def _alike(got: torch.Tensor, output: torch.Tensor) -> bool:
    return bool(got.dtype == output.dtype and got.numel() == output.numel())


def _right(case: Case, index: int, got: torch.Tensor) -> bool:
    """Whether `got` would pass for the reference's output number `index`."""
    expected, got = case.outputs[index], got.reshape(case.outputs[index].shape)
    allowed = case.tolerances[index]
    # As a rule it is wrong from the first element on, and gigabytes need not be read to see it.
    if is_inexact(expected) and _any_wrong(expected, got, allowed):
        return False
    return compare(expected, got, [allowed], inputs=case.inputs).status is Status.OK


def _any_wrong(expected: torch.Tensor, got: torch.Tensor, allowed: Tolerance) -> bool:
    """Whether an element is wrong in the first of the pieces that tensors are compared by."""
    for want, have in chunks(expected, got):
        return bool(wrong_elements(want, have, allowed).any())
    return False
