"""Both suites on a real GPU: no attack is rewarded or spoils the next verdict, no honest look-alike is refused."""

from __future__ import annotations

import pytest

from kb_ray.bench.host import Evaluator
from tests.threats.expect import undue_doubt
from tests.threats.record import Honest, Threat, honest, label, threats
from tests.threats.running import canary, complaints, left_behind, request_for


@pytest.mark.parametrize("threat", threats("cuda"), ids=label)
def test_an_attack_is_refused_and_harms_nobody(gpu_evaluator: Evaluator, threat: Threat) -> None:
    gpu_evaluator.start()
    before = gpu_evaluator.pids()
    verdict = gpu_evaluator.evaluate(request_for(threat, "cuda"))
    after = gpu_evaluator.evaluate(canary("cuda"))
    assert complaints(threat, verdict, after) == []
    assert gpu_evaluator.pids() == before
    assert left_behind(gpu_evaluator) == []


@pytest.mark.parametrize("case", honest("cuda"), ids=label)
def test_honest_code_is_accepted(gpu_evaluator: Evaluator, case: Honest) -> None:
    verdict = gpu_evaluator.evaluate(request_for(case, "cuda"))
    assert case.complaint(verdict) is None
    assert undue_doubt(label(case), verdict) is None
