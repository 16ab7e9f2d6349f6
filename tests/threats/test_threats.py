"""On the interpreter: no attack gets `ok` or harms whoever comes next, and no honest look-alike is refused."""

from __future__ import annotations

import pytest

from kb_ray.bench.host import Evaluator
from tests.threats.record import Honest, Threat, honest, label, threats
from tests.threats.running import canary, complaints, left_behind, request_for


@pytest.mark.parametrize("threat", threats("cpu"), ids=label)
def test_an_attack_is_refused_and_harms_nobody(evaluator: Evaluator, threat: Threat) -> None:
    evaluator.start()
    before = evaluator.pids()
    verdict = evaluator.evaluate(request_for(threat, "cpu"))
    after = evaluator.evaluate(canary("cpu"))
    assert complaints(threat, verdict, after) == []
    assert evaluator.pids() == before
    assert left_behind(evaluator) == []


@pytest.mark.parametrize("case", honest("cpu"), ids=label)
def test_honest_code_is_accepted(evaluator: Evaluator, case: Honest) -> None:
    assert case.complaint(evaluator.evaluate(request_for(case, "cpu"))) is None
