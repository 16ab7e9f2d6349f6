"""Times against clocks and floors: tables of what is borne out and what is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kb_ray.bench.child import changes, clock
from kb_ray.bench.child.clock import agrees, claim_holds, per_call_ms
from kb_ray.bench.child.limits import Limits
from kb_ray.bench.child.plans import plans_of
from kb_ray.bench.child.rotation import again, on_top

H100 = Limits(bytes_per_s=3.35e12, l2_bytes=50 << 20, multiprocessors=132, clock_hz=1.98e9)


@pytest.mark.parametrize("ms", [0.5, 3.0])
def test_the_fixed_part_of_a_repetition_does_not_count(ms: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 7.0

    def repeat(calls: int) -> None:
        nonlocal now
        now += 0.02 + calls * ms / 1e3

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now))
    assert per_call_ms(repeat, ms) == pytest.approx(ms)


@pytest.mark.parametrize(
    ("reported", "slope", "fine"),
    [(1.0, 1.0, True), (1.0, 1.3, True), (1.0, 2.0, False), (0.01, 0.12, True), (0.01, 0.5, False), (5.0, 4.0, True)],
)
def test_reported_times_against_the_wall_clock(reported: float, slope: float, fine: bool) -> None:
    assert agrees(reported, slope) is fine


def test_slow_python_is_no_lie_where_the_speedup_holds_without_the_launch_queue() -> None:
    # A model of many small kernels: both sides are bound by launching.
    assert claim_holds(kernel_ms=0.2, reference_ms=0.4, kernel_slope_ms=1.0, reference_slope_ms=2.0)
    # A kernel that takes 2 ms and reports 0.1 against a reference of 1 ms.
    assert not claim_holds(kernel_ms=0.1, reference_ms=1.0, kernel_slope_ms=2.0, reference_slope_ms=1.0)


def test_memory_floor_counts_what_must_come_from_memory() -> None:
    ms = H100.memory_floor_ms(input_bytes=2 * 16 << 20, output_bytes=16 << 20)
    assert ms == pytest.approx(0.8 * (32 << 20) / 3.35e12 * 1e3)
    # Results that fit into the L2 cache need not have left it.
    assert H100.memory_floor_ms(0, 50 << 20) == 0
    assert H100.memory_floor_ms(0, 150 << 20) == pytest.approx(0.8 * (100 << 20) / 3.35e12 * 1e3)


def test_arithmetic_floor_is_that_of_tensor_cores() -> None:
    flops = 2 * 4096**3
    assert H100.arithmetic_floor_ms(flops, 16) == pytest.approx(0.25 * flops / (132 * 1.98e9 * 4096) * 1e3)
    assert H100.arithmetic_floor_ms(flops, 32) == 2 * H100.arithmetic_floor_ms(flops, 16)


def test_nothing_known_means_no_floor() -> None:
    assert Limits().memory_floor_ms(1 << 40, 1 << 40) == Limits().arithmetic_floor_ms(1 << 60, 16) == 0


def test_what_changing_inputs_takes_is_of_those_that_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 7.0

    def put(*_: object) -> None:
        nonlocal now
        now += 2e-5

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(changes, "_put", put)
    floats, positions = [torch.rand(40) for _ in range(3)], torch.randperm(40)
    given = [*floats, positions]
    assert clock.varying_ms(given, plans_of(given), on_top) == pytest.approx(3 * 0.02)
    assert clock.varying_ms(given, plans_of(given), again) == pytest.approx(3 * 2 * 0.02)
    assert clock.varying_ms([torch.rand(8)], [], again) == 0


def test_of_several_passes_the_shortest_of_each_length_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now, hiccups = 0.0, iter([0.0, 0.004, 0.0, 0.003, 0.0, 0.0])

    def repeat(calls: int) -> None:
        nonlocal now
        now += 0.01 + calls * 1e-4 + next(hiccups)

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now))
    assert clock.per_call_ms(repeat, 0.1, passes=3) == pytest.approx(0.1)
