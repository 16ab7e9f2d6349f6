"""Runs one case and says what is wrong, and what it left behind. Knows no case, and starts no evaluator."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Status, Task, Verdict
from tests.fixtures_bench import ADD_RELU, KERNEL
from tests.threats.record import Case, Device, label, said

TIMEOUT_S = {"cpu": 20.0, "cuda": 60.0}
_ids = itertools.count()


def request_for(case: Case, device: Device) -> BenchRequest:
    """The request of a case as a run makes it: the usual settings, and those that the case changes."""
    return request(case.code, case.task, device, case.settings)


def canary(device: Device) -> BenchRequest:
    """The honest kernel that must pass after every attack."""
    return request(KERNEL, device=device, settings={"n_correctness": 1, "n_trials": 3, "generalise": "off"})


def request(code: str, task: Task = ADD_RELU, device: Device = "cpu", settings: Mapping[str, Any] = {}) -> BenchRequest:
    """A request under the usual settings, `settings` beside them."""
    wanted = {"device": device, "timeout_s": TIMEOUT_S[device], "n_trials": 20} | dict(settings)
    return BenchRequest(
        request_id=f"threats-{os.getpid()}-{next(_ids)}", task=task, kernel_code=code, settings=BenchSettings(**wanted)
    )


def complaints(case: Case, verdict: Verdict, canary: Verdict) -> list[str]:
    """What is wrong with the verdict on a case and on the honest kernel after it; empty where all is well."""
    wrong = case.complaint(verdict)
    found = [] if wrong is None else [f"{label(case)}: {wrong}"]
    return found + ([] if canary.status is Status.OK else [f"the honest kernel after {label(case)}: {said(canary)}"])


def left_behind(evaluator: Evaluator) -> list[str]:
    """Scratch folders, recorded groups and processes of candidates that are no more."""
    assert evaluator.run_dir is not None
    folder = evaluator.run_dir / "candidates"
    left = [f"scratch folder {path.name}" for path in folder.iterdir() if path.name != "groups"]
    left += [f"group {name}" for name in os.listdir(folder / "groups")]
    return left + [f"process {pid} of the candidates" for pid in children_of(evaluator.pids()["candidates"])]


def children_of(parent: int) -> list[int]:
    """Living children of a process. Whatever a candidate leaves is adopted by its zygote, so it is among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _state_and_parent(entry) == (True, parent):
            found.append(int(entry.name))
    return found


def _state_and_parent(entry: Path) -> tuple[bool, int]:
    """(whether it lives, its parent) of a process; (False, 0) where it has just gone."""
    try:
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False, 0
    return state not in "ZX", int(parent)
