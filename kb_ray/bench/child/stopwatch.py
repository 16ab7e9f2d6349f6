"""Prepares a measurement, waits for the GPU to be free and quiet, and holds it meanwhile.

Whatever can be done while others may still use the card is done before; what is measured is `measure`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from kb_ray.bench.child.card import Card
from kb_ray.bench.child.cases import Case, Loaded
from kb_ray.bench.child.children import Child
from kb_ray.bench.child.findings import Findings
from kb_ray.bench.child.measure import Measured, Measurement
from kb_ray.bench.child.quiet import is_quiet
from kb_ray.bench.child.reference_process import ReferenceFailed
from kb_ray.bench.child.references import References, timed_slots
from kb_ray.bench.protocol import BenchSettings

STRANGER_S = 1.0
"""How long a GPU is waited for that is busy although no candidate of ours can be the reason."""
RETRY_S = 0.05
COMPILE_TIMEOUT_S = 300.0


def take_times(
    child: Child, program: str, references: References, loaded: Loaded, settings: BenchSettings, card: Card,
    found: Findings,
) -> Measured:  # fmt: skip
    """Both sides measured alone on the card, on inputs that nobody has seen. The child's exceptions pass through."""
    with found.phase("timing_inputs"):
        cases = _cases(references, loaded, settings, card)
        with card.slot.shared():
            references.lend_for_timing(loaded, cases, settings)
            lent = references.process.serial
            if settings.baseline == "compile":
                settings = _compiled(references, loaded, cases, settings, found)

    def lend_again() -> None:
        # Another task's reference may have failed meanwhile and taken the process with it.
        if not references.process.holds(lent):
            references.lend_for_timing(loaded, cases, settings)

    try:
        for slot, case in zip(timed_slots(cases), cases, strict=True):
            child.put(slot, case.inputs_tree, case.inputs, settings.timeout_s, case.plans)
        measurement = Measurement(child, program, references, loaded, cases, settings, card.machine)
        with found.phase("timing_inputs"):
            measurement.begin()
        return _alone(measurement, child, card, settings.timeout_s, lend_again, found)
    finally:
        # However it ends: nothing else would ever give these inputs back.
        with card.slot.shared(), suppress(ReferenceFailed):
            references.end_timing(cases, settings)


def _cases(references: References, loaded: Loaded, settings: BenchSettings, card: Card) -> list[Case]:
    """Two that take turns, or a large one; piece by piece, so that whoever waits to be alone need not wait for all."""
    with card.slot.shared():
        cases = [references.fresh(loaded, settings)]
    if not loaded.large:
        with card.slot.shared():
            cases.append(references.fresh(loaded, settings, near=cases[0]))
    return cases


def _alone(
    measurement: Measurement, child: Child, card: Card, timeout_s: float, prepare: Callable[[], None], found: Findings
) -> Measured:
    """The measurement, once the card is free and quiet, right after `prepare`."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        with card.slot.alone(child):
            found.spent("queue_timing", time.monotonic() - asked)
            busy = not is_quiet()
            patience = timeout_s if card.slot.crowd > 1 else STRANGER_S
            if not busy or time.monotonic() - began > patience:
                prepare()
                with found.phase("timing"):
                    measured = measurement.run()
                break
        time.sleep(RETRY_S)
    if busy:
        measured.flags.add("gpu_busy")
    measurement.check(measured)
    return measured


def _compiled(
    references: References, loaded: Loaded, cases: list[Case], settings: BenchSettings, found: Findings
) -> BenchSettings:
    """Compile the reference ahead of the exclusive part; settings without it where that fails."""
    try:
        patient = settings.model_copy(update={"timeout_s": max(settings.timeout_s, COMPILE_TIMEOUT_S)})
        references.repeat(loaded, cases, 2, patient, compiled=True)
        return settings
    except ReferenceFailed:
        found.flags.add("compile_failed")
        references.lend_for_timing(loaded, cases, settings)
        return settings.model_copy(update={"baseline": "eager"})
