"""The task gate: would a candidate that computes nothing pass for this task? Facts about a reference to flags.

Runs in the judge, once per task, on tensors that the judge owns; the reference is run through what the
caller hands in. Knows no candidate, no process and no policy: `tasks.quality` says what each flag means and
which ones exclude. Inputs and outputs may be gigabytes, so that random positions of each are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from kb_ray.bench.child.cases import Case
from kb_ray.bench.child.inputs import Variant, transform, variants
from kb_ray.bench.child.tolerance import (
    Tolerance,
    is_inexact,
    reduction_size,
    tolerance,
    wide,
    wrong_elements,
)
from kb_ray.tasks.quality import IGNORES_INPUT, IGNORES_WEIGHTS, NOT_DETERMINISTIC

LOOKED_AT = 1 << 22
"""Elements of a tensor that are looked at, at most; a quarter on a CPU, where they take time."""
FIRST_LOOK = 1 << 14
"""Elements that most blind answers fail on already."""
INPUTS_TRIED = 16
"""Input tensors of a task that are changed one by one, at most."""
KERNELBENCH_ATOL = 1e-4
"""KernelBench's tolerance in float32, absolute and relative."""
KERNELBENCH_16BIT = 1e-2
"""The same in 16 bits, and in all dtypes in its earlier versions."""
_SEED = 20_011

Tensors = list[torch.Tensor]
Answer = Callable[[Tensors], "Tensors | None"]


class _Set(NamedTuple):
    """One set of inputs with what the reference makes of it."""

    inputs: Sequence[torch.Tensor]
    outputs: Sequence[torch.Tensor]
    tolerances: Sequence[Tolerance] = ()
    """What a verdict allows around each output; empty where only its dtype and scale are to say."""

    @classmethod
    def of(cls, case: Case) -> _Set:
        return cls(case.inputs, case.outputs, case.tolerances)


def inspect(first: Case, second: Case, answer: Answer, reweighted: Callable[[], Tensors | None]) -> frozenset[str]:
    """The flags of a task, out of `quality.FLAGS`.

    `first` and `second`: two draws of its inputs. `answer`: the reference's outputs for other inputs, None
    where it fails; it must leave the tensors it is given as they are. `reweighted`: its outputs for the first
    inputs with weights drawn under another seed; None where it fails or where the weights come out the same.
    """
    gate = _Gate(_Set.of(first), _Set.of(second), answer)
    again = answer(first.inputs)
    if again is None or not gate.alike(again, rough=True):
        return frozenset({NOT_DETERMINISTIC, *gate.kernelbench()})
    if len(second.outputs) != len(first.outputs) or not first.outputs:
        # Numbers alone, or as many tensors as the values decide: nothing that could be answered blindly.
        return frozenset()
    if passing := gate.trivial():
        # That such an output ignores its inputs and weights says nothing more.
        return frozenset(passing)
    flags = set(gate.kernelbench())
    if gate.ignores_input():
        flags.add(IGNORES_INPUT)
    if any(is_inexact(t) and t.numel() for t in first.weights):
        got = reweighted()
        if got is not None and gate.alike(got):
            flags.add(IGNORES_WEIGHTS)
    return frozenset(flags)


class _Gate:
    """What is found out about one task. Tensors are compared at the same positions throughout."""

    def __init__(self, first: _Set, second: _Set, answer: Answer) -> None:
        self.first, self.second, self.answer = first, second, answer
        self._positions: dict[tuple[torch.Size, torch.device], torch.Tensor] = {}
        self._constants = [_constants(self._look(output)) for output in first.outputs]

    def alike(self, got: Sequence[torch.Tensor], rough: bool = False) -> bool:
        """Whether `got` would pass for the first outputs; `rough`: at the loosest tolerance there is."""
        expected = self.first.outputs
        if [_kind(t) for t in got] != [_kind(t) for t in expected]:
            return False
        return all(
            _passes(
                self._look(want),
                self._look(have),
                _at_most(self._look(want)) if rough else self._allowed(self.first, index),
            )
            for index, (want, have) in enumerate(zip(expected, got, strict=True))
        )

    def trivial(self) -> set[str]:
        """The simplest trivial answers that pass our own comparison on every set; empty where none does."""
        alive = [
            {name for name in _NAMES if self._passes_here(name, index, self.first)}
            for index in range(len(self.first.outputs))
        ]
        for each in self._sets():
            if not all(alive):
                break
            alive = [
                {name for name in names if self._passes_here(name, index, each)} for index, names in enumerate(alive)
            ]
        return {_simplest(names) for names in alive} if alive and all(alive) else set()

    def kernelbench(self) -> set[str]:
        """The simplest trivial answers that pass KernelBench's own check on inputs as drawn."""
        drawn = (self.first, self.second)
        if len(self.first.outputs) != len(self.second.outputs):
            return set()
        for atol, names, ending in (
            (KERNELBENCH_ATOL, _CONSTANTS, "_kernelbench"),
            (KERNELBENCH_16BIT, ("zeros_pass",), "_kernelbench_16bit"),
        ):
            passing = [
                {name for name in names if all(self._close(name, index, each, atol) for each in drawn)}
                for index in range(len(self.first.outputs))
            ]
            if passing and all(passing):
                return {_simplest(found) + ending for found in passing}
        return set()

    def ignores_input(self) -> bool:
        """Whether an input tensor can be replaced without any effect on the outputs."""
        return any(self._ignores(index) for index in range(min(len(self.first.inputs), INPUTS_TRIED)))

    def _ignores(self, index: int) -> bool:
        given, answered = self.first.inputs[index], False
        for other in self._replacements(given, index):
            outputs = self.answer([*self.first.inputs[:index], other, *self.first.inputs[index + 1 :]])
            if outputs is None:
                continue
            if not self.alike(outputs):
                return False
            answered = True
        return answered

    def _replacements(self, given: torch.Tensor, index: int) -> Iterator[torch.Tensor]:
        """The same input of another draw, where it differs, and for numbers one moved by three times their size."""
        other = self.second.inputs[index] if index < len(self.second.inputs) else given
        if _kind(other) == _kind(given) and not torch.equal(self._look(other), self._look(given)):
            yield other
        if is_inexact(given) and given.numel():
            yield transform([given], Variant("shifted", "shifted", False), _SEED)[0]

    def _sets(self) -> Iterator[_Set]:
        """The other sets of a verdict: the second draw, then every family over the first. Made as they are wanted."""
        yield self.second
        finite = self._finite(self.first.outputs)
        seen = {"as_drawn", "new_seed"}
        for variant in variants(16):
            if variant.family in seen:
                continue
            seen.add(variant.family)
            inputs = transform(self.first.inputs, variant, _SEED)
            outputs = self.answer(inputs)
            # As in a verdict: a family on which the reference fails or turns non-finite does not count.
            if outputs is None or len(outputs) != len(self.first.outputs):
                continue
            if self._finite(outputs) or not finite:
                yield _Set(inputs, outputs)

    def _passes_here(self, name: str, index: int, each: _Set) -> bool:
        want = self._look(each.outputs[index])
        allowed = self._allowed(each, index)
        return any(_passes(want, have, allowed) for have in self._answers(name, index, each, want))

    def _close(self, name: str, index: int, each: _Set, atol: float) -> bool:
        want = self._look(each.outputs[index])
        return any(
            all(torch.allclose(wide(a), wide(b), atol=atol, rtol=atol) for a, b in _looks(want, have))
            for have in self._answers(name, index, each, want)
        )

    def _answers(self, name: str, index: int, each: _Set, want: torch.Tensor) -> Iterator[torch.Tensor]:
        """What a trivial candidate of this kind answers for output `index`, where `want` is looked at."""
        if name == "zeros_pass":
            yield torch.zeros_like(want)
        elif name == "ones_pass":
            yield torch.ones_like(want)
        elif name == "constant_passes":
            yield from (constant.to(want.dtype).expand(want.shape) for constant in self._constants[index])
        elif name == "other_output_passes":
            yield from self._looks_like(want, each.outputs[index], [self._other(each).outputs[index]])
        else:
            yield from self._looks_like(want, each.outputs[index], each.inputs)

    def _looks_like(
        self, want: torch.Tensor, output: torch.Tensor, offered: Sequence[torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        yield from (self._look(t).to(want.device) for t in offered if _kind(t) == _kind(output))

    def _other(self, each: _Set) -> _Set:
        return self.first if each is self.second else self.second

    def _look(self, tensor: torch.Tensor) -> torch.Tensor:
        """Up to `LOOKED_AT` elements as one dimension, at positions that its shape decides."""
        count = LOOKED_AT if tensor.is_cuda else LOOKED_AT // 4
        if tensor.numel() <= count:
            return tensor.detach().reshape(-1)
        key = (tensor.shape, tensor.device)
        if key not in self._positions:
            generator = torch.Generator(device=tensor.device).manual_seed(_SEED)
            self._positions[key] = torch.randint(tensor.numel(), (count,), generator=generator, device=tensor.device)
        places = self._positions[key]
        if tensor.is_contiguous():
            return tensor.detach().view(-1)[places]
        return tensor.detach()[torch.unravel_index(places, tensor.shape)]

    def _allowed(self, each: _Set, index: int) -> Tolerance:
        if len(each.tolerances) == len(each.outputs):
            return each.tolerances[index]
        output = each.outputs[index]
        return tolerance(self._look(output), None, reduction_size(each.inputs, output))

    def _finite(self, outputs: Sequence[torch.Tensor]) -> bool:
        return all(bool(torch.isfinite(wide(self._look(t))).all()) for t in outputs if is_inexact(t))


_CONSTANTS = ("zeros_pass", "ones_pass", "constant_passes", "other_output_passes")
_NAMES = (*_CONSTANTS, "input_passes")
"""Trivial answers as flags, the simplest first. An input, returned, counts only here: on inputs as drawn, which
are often positive, the honest answer of a plain ReLU is its input."""


def _simplest(names: set[str]) -> str:
    return next(name for name in _NAMES if name in names)


def _at_most(want: torch.Tensor) -> Tolerance:
    """The cap on what a comparison allows, whatever the reference's own error: as if nothing of it were right."""
    return tolerance(want, torch.zeros(want.shape, dtype=torch.float64, device=want.device))


def _passes(want: torch.Tensor, have: torch.Tensor, allowed: Tolerance) -> bool:
    return not any(bool(wrong_elements(a, b, allowed).any()) for a, b in _looks(want, have))


def _looks(want: torch.Tensor, have: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both tensors in two parts, a small one first."""
    yield want[:FIRST_LOOK], have[:FIRST_LOOK]
    yield want[FIRST_LOOK:], have[FIRST_LOOK:]


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _constants(looked_at: torch.Tensor) -> Tensors:
    """What a candidate might have learned to answer: the mean and the first element of an output."""
    if not looked_at.numel():
        return []
    values = wide(looked_at)
    values = values[torch.isfinite(values)]
    mean = [values.mean() if is_inexact(looked_at) else values.mean().real.round()] if values.numel() else []
    return [*mean, looked_at[0]]
