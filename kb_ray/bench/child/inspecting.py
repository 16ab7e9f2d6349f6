"""What a task itself is worth: its flags and sizes in place of a verdict on a candidate. Runs no candidate."""

from __future__ import annotations

from kb_ray.bench.child import blame
from kb_ray.bench.child.exclusive import Slot
from kb_ray.bench.child.findings import Findings
from kb_ray.bench.child.reference_process import ReferenceFailed
from kb_ray.bench.child.references import References
from kb_ray.bench.protocol import BenchRequest
from kb_ray.records import Stage, Status, Verdict
from kb_ray.tasks.quality import REFERENCE_FAILED, size_flags


def inspected(request: BenchRequest, references: References, slot: Slot, found: Findings) -> Verdict:
    """The flags of the request's task. With `max_bytes`, a task larger than that is not run."""
    limit = request.max_bytes
    try:
        with slot.shared(), found.phase("reference"):
            if limit is not None:
                sizes = references.sizes(request.task, request.settings, limit)
                found.input_bytes = sizes.get("inputs")
                if unfit := size_flags(sizes, limit):
                    found.flags |= unfit
                    return found.verdict(Status.OK, Stage.STATIC)
            loaded = references.get(request.task, request.settings)
    except ReferenceFailed as failure:
        return reference_failed(found, failure)
    found.flags |= loaded.flags
    found.input_bytes = loaded.input_bytes
    return found.verdict(Status.OK, Stage.FULL)


def reference_failed(found: Findings, failure: ReferenceFailed) -> Verdict:
    """Nobody's kernel is to blame for a reference that cannot be run."""
    found.flags.add(REFERENCE_FAILED)
    error = blame.detail(Status.INFRA_ERROR, str(failure))
    return found.verdict(Status.INFRA_ERROR, Stage.STATIC, error=error)
