"""The task gate flags tasks that a kernel which computes nothing would pass, and leaves honest ones alone.

Programs are small, with the mathematics of well-known weak benchmark problems; what depends on their size
(elements below a tolerance) is kept by choosing shapes that give elements of the same size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kb_ray.bench.child import gate
from kb_ray.bench.child.cases import Case
from kb_ray.bench.child.inputs import variants
from kb_ray.tasks.quality import EXCLUDING, FLAGS, PASSES, UNTRUSTED

Draw = Callable[[], list[torch.Tensor]]


def flags(make: Callable[[], Any], draw: Draw) -> frozenset[str]:
    """What the gate says of the module or function that `make` gives, on inputs that `draw` draws."""
    torch.manual_seed(1)
    model = make()

    def run(inputs: list[torch.Tensor], which: Any = model) -> list[torch.Tensor]:
        with torch.no_grad():
            out = which(*[t.clone() for t in inputs])
        return [out] if isinstance(out, torch.Tensor) else list(out)

    def attempt(inputs: list[torch.Tensor]) -> list[torch.Tensor] | None:
        try:
            return run(inputs)
        except RuntimeError:
            return None

    def state(of: Any) -> list[torch.Tensor]:
        return [t.clone() for t in of.state_dict().values()] if isinstance(of, nn.Module) else []

    made = state(model)

    def reweighted() -> list[torch.Tensor] | None:
        torch.manual_seed(2)
        other = make()
        same = all(torch.equal(a, b) for a, b in zip(made, state(other), strict=True))
        return None if same else run(first.inputs, other)

    def case(seed: int) -> Case:
        torch.manual_seed(seed)
        inputs = draw()
        outputs = run(inputs)
        given = {"weights": made, "inputs_after": None, "outputs_tree": None, "inputs_tree": None}
        return Case(variant=variants(1)[0], inputs=inputs, outputs=outputs, **given)

    first, second = case(3), case(4)
    found = gate.inspect(first, second, attempt, reweighted)
    assert found <= set(FLAGS)
    return found


def function(call: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    return lambda: call


def uniform(*shape: int) -> Draw:
    return lambda: [torch.rand(shape)]


def normal(*shapes: tuple[int, ...]) -> Draw:
    return lambda: [torch.randn(shape) for shape in shapes]


class ConvGroupNorm(nn.Module):
    """A convolution and a group normalisation, then what `end` does."""

    def __init__(self, end: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.norm, self.end = nn.Conv3d(3, 8, 3), nn.GroupNorm(4, 8), end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.norm(self.conv(x)))


class LinearThen(nn.Module):
    """A linear layer, then what `end` does."""

    def __init__(self, width: int, end: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.end = nn.Linear(16, width), end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.linear(x))


def centred_maximum(x: torch.Tensor) -> torch.Tensor:
    largest = torch.max(x, dim=1, keepdim=True).values
    return F.gelu(largest - largest.mean(dim=1, keepdim=True))


def clamped_at_zero(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.clamp(torch.minimum(x, torch.tensor(0.0)), 0.0, 1.0), 0.2)


VOLUME = uniform(2, 3, 6, 10, 10)
# An L2 norm over 65535 elements leaves elements below 1e-2; a Frobenius norm over 1e9 leaves less than 1e-4.
WEAK: dict[str, tuple[Callable[[], Any], Draw, str]] = {
    "softmax over a long row": (function(lambda x: torch.softmax(x, 1)), uniform(2, 60_000), "zeros_pass_kernelbench"),
    "frobenius norm": (function(lambda x: x / torch.norm(x) * 0.01), uniform(300, 300), "zeros_pass_kernelbench"),
    "l2 norm": (
        function(lambda x: x / torch.norm(x, dim=1, keepdim=True)),
        uniform(2, 65_535),
        "zeros_pass_kernelbench_16bit",
    ),
    "minimum of many": (
        function(lambda x: torch.min(x, dim=1)[0]),
        uniform(4, 4_096, 20),
        "zeros_pass_kernelbench_16bit",
    ),
    "mean of a group norm": (
        lambda: ConvGroupNorm(lambda x: x.mean(dim=[1, 2, 3, 4])),
        VOLUME,
        "zeros_pass_kernelbench",
    ),
    "maximum less its own mean": (lambda: LinearThen(32, centred_maximum), uniform(8, 16), "zeros_pass"),
    "minimum with 0, then from 0 up": (lambda: ConvGroupNorm(clamped_at_zero), VOLUME, "zeros_pass"),
    "dropout before a softmax": (
        lambda: LinearThen(64, lambda x: torch.softmax(F.dropout(x, 0.2), dim=1)),
        uniform(8, 16),
        "reference_not_deterministic",
    ),
}


@pytest.mark.parametrize("name", WEAK)
def test_a_task_that_blind_answers_pass_is_flagged_and_excluded(name: str) -> None:
    make, draw, flag = WEAK[name]
    found = flags(make, draw)
    assert flag in found
    assert flag in EXCLUDING


@pytest.mark.parametrize("name", ["softmax over a long row", "frobenius norm", "l2 norm", "minimum of many"])
def test_a_task_whose_outputs_are_merely_small_is_still_judged_well_here(name: str) -> None:
    make, draw, _ = WEAK[name]
    assert not flags(make, draw) & UNTRUSTED


def nearly_constant(x: torch.Tensor) -> torch.Tensor:
    return 5 + 0.01 * torch.tanh(x)


HONEST: dict[str, tuple[Callable[[], Any], Draw]] = {
    # Inputs are positive: the input itself passes a check on inputs as drawn.
    "relu": (function(torch.relu), uniform(64, 512)),
    "relu of both signs": (function(torch.relu), normal((64, 512))),
    "matmul": (function(torch.matmul), lambda: [torch.rand(48, 256), torch.rand(256, 40)]),
    "layer norm": (lambda: nn.LayerNorm((16, 8)), uniform(4, 16, 8)),
    "layer norm with a bias of its own": (lambda: LinearThen(16, nn.LayerNorm(16)), uniform(8, 16)),
    "linear": (lambda: nn.Linear(16, 24), uniform(8, 16)),
    "convolution": (lambda: nn.Conv2d(3, 4, 3), uniform(2, 3, 12, 12)),
    "softmax of short rows": (function(lambda x: torch.softmax(x, 1)), normal((16, 100))),
    "sigmoid": (function(torch.sigmoid), normal((16, 100))),
    "hard clamp": (function(lambda x: torch.clamp(x, -1, 1)), uniform(16, 100)),
    "batch norm in training": (lambda: nn.BatchNorm2d(4), uniform(8, 4, 6, 6)),
    "argmax": (function(lambda x: torch.argmax(x, 1)), normal((64, 50))),
    "cumulative sum": (function(lambda x: torch.cumsum(x, 1)), normal((8, 64))),
    "small residual": (function(lambda x, y: x + 0.01 * y), normal((16, 64), (16, 64))),
    "an output that varies by less than a percent": (function(nearly_constant), normal((16, 64))),
    "two outputs": (function(lambda x: (x.amin(1), x.argmax(1))), normal((16, 64))),
    "a masked sum": (function(lambda x, m: (x * m).sum(1)), lambda: [torch.randn(8, 64), torch.rand(8, 64) > 0.5]),
    "embedding": (lambda: nn.Embedding(50, 8), lambda: [torch.randint(0, 50, (4, 6))]),
    "half": (function(lambda x: F.gelu(x)), lambda: [torch.randn(16, 64).half()]),
    "complex": (function(lambda x: x * x), lambda: [torch.randn(8, 16, dtype=torch.complex64)]),
    "an output whose size the values decide": (function(lambda x: x[x > 0]), normal((8, 16))),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_task_is_not_flagged(name: str) -> None:
    assert flags(*HONEST[name]) == frozenset()


BLIND: dict[str, tuple[Callable[[], Any], Draw, str]] = {
    "ones": (function(torch.ones_like), normal((8, 16)), "ones_pass"),
    "a constant": (function(lambda x: torch.full_like(x, 2.5)), normal((8, 16)), "constant_passes"),
    "a constant of integers": (function(lambda x: torch.full((8,), 7)), normal((8, 16)), "constant_passes"),
    "positions": (function(lambda x: torch.arange(64.0) * (1 + 0 * x.mean())), normal((64,)), "other_output_passes"),
    "the input": (function(lambda x: x.clone()), normal((8, 16)), "input_passes"),
    "one of two inputs": (function(lambda x, y: torch.relu(x)), normal((8, 16), (8, 16)), "ignores_input"),
    "an input that is always the same": (
        function(lambda x, y: torch.relu(x) + 0 * y),
        lambda: [torch.randn(8, 16), torch.ones(16)],
        "ignores_input",
    ),
    "noise": (function(lambda x: x + torch.randn_like(x)), normal((8, 16)), "reference_not_deterministic"),
    "no weights": (
        lambda: LinearThen(8, lambda x: x[:, :1] * 0 + torch.arange(8.0)),
        normal((4, 16)),
        "other_output_passes",
    ),
    "weights behind a zero": (lambda: GatedResidual(), normal((4, 16)), "ignores_weights"),
}


class GatedResidual(nn.Module):
    """A branch that is switched off when the model is made."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.gain = nn.Linear(16, 16), nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + self.gain * self.branch(x)


@pytest.mark.parametrize("name", BLIND)
def test_each_kind_of_blind_answer_has_its_flag(name: str) -> None:
    make, draw, flag = BLIND[name]
    assert flag in flags(make, draw)


def test_the_simplest_answer_is_the_one_named() -> None:
    assert flags(function(torch.zeros_like), normal((8, 16))) == {"zeros_pass"}
    assert flags(lambda: LinearThen(8, lambda x: 0 * x), normal((4, 16))) == {"zeros_pass"}


def test_a_blind_answer_must_pass_for_every_output() -> None:
    assert flags(function(lambda x: (x * 2, torch.zeros(3))), normal((8, 16))) == frozenset()
    assert flags(function(lambda x: (x.clone(), torch.zeros(3))), normal((8, 16))) == {"input_passes", "zeros_pass"}


def test_a_family_of_inputs_on_which_the_reference_fails_does_not_count() -> None:
    def only_small(x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 1:
            raise RuntimeError("out of range")
        return torch.zeros_like(x)

    assert flags(function(only_small), uniform(8, 16)) == {"zeros_pass"}


def test_a_reference_that_fails_on_changed_inputs_is_not_said_to_ignore_them() -> None:
    def strict(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        if not torch.equal(table, torch.arange(4.0)):
            raise RuntimeError("another table")
        return torch.relu(x)

    assert flags(function(strict), lambda: [torch.randn(8, 4), torch.arange(4.0)]) == frozenset()


def test_tensors_larger_than_what_is_looked_at_are_judged_by_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LOOKED_AT", 2000)
    monkeypatch.setattr(gate, "FIRST_LOOK", 100)
    transposed = lambda: [torch.randn(40, 60).T, torch.randn(60, 40)]  # noqa: E731
    assert flags(function(lambda x, y: torch.relu(x + y)), transposed) == frozenset()
    assert flags(function(lambda x, y: torch.relu(x).T.contiguous().T), transposed) == {"ignores_input"}
    assert flags(function(lambda x, y: torch.full_like(x, 3.0)), transposed) == {"constant_passes"}


def test_every_flag_that_a_comparison_of_ours_lets_pass_takes_trust_away() -> None:
    assert set(PASSES) < UNTRUSTED < EXCLUDING < set(FLAGS)
