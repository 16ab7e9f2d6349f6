"""What must hold of each turn's question and verdict, beside the turn and the run that they belong to (pure).

Does not know what was said and decided then: that is episode.py's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kb_ray.bench.protocol import judged
from kb_ray.records import Episode, Stage, Status, Turn, Verdict
from kb_ray.traces.run import request_seed
from kb_ray.verifying.findings import REPLACED, Found
from kb_ray.verifying.rules import Rules

_LAST_STAGES = (Stage.FULL, Stage.TIMING)


def turn_faults(episode: Episode, rules: Rules) -> Iterator[Found]:
    """What is wrong with questions and verdicts, turn by turn."""
    for turn in episode.turns:
        yield from (("verdict", f"turn {turn.index}: {what}") for what in _verdict(episode, turn, rules))
        yield from (("identity", what) for what in _question(episode, turn, rules))


def _verdict(episode: Episode, turn: Turn, rules: Rules) -> Iterator[str]:
    verdict = turn.verdict
    if verdict.status is Status.INFRA_ERROR:
        yield "an infra_error is no verdict on a candidate"
        return
    if verdict.status is Status.OK and verdict.tests_total == 0:
        yield "ok without a test"
    if verdict.status is Status.OK and verdict.stage not in _LAST_STAGES:
        yield f"ok at {verdict.stage}, before all tests"
    yield from _about(episode, turn, rules)
    yield from _of_the_run(verdict, rules)
    yield from _times(verdict)


def _about(episode: Episode, turn: Turn, rules: Rules) -> Iterator[str]:
    about, code = turn.verdict.judged, turn.triton_code
    if about is None:
        if rules.says_about and code is not None:
            yield "its verdict does not say which candidate it is about"
    elif REPLACED not in (code or "") + episode.task.reference_code and about != judged(episode.task, code or ""):
        yield "its verdict is on another candidate"


def _of_the_run(verdict: Verdict, rules: Rules) -> Iterator[str]:
    """What neither the source alone nor the answer decided was decided by the run's bench."""
    device, version, sets = verdict.env.device, verdict.verifier_version, verdict.tests_total
    if rules.device is not None and device not in (None, rules.device):
        yield f"reached on {device}, the run's are on {rules.device}"
    if rules.verifier is not None and version not in ("", rules.verifier):
        yield f"of verifier {version}, the run's are of {rules.verifier}"
    if rules.sets is not None and sets not in (0, rules.sets):
        yield f"{sets} tests, the run has {rules.sets}"


def _times(verdict: Verdict) -> Iterator[str]:
    """A speedup is the quotient of two medians, and each is one of samples."""
    kernel, reference = verdict.kernel_time, verdict.reference_time
    for side, time in (("kernel", kernel), ("reference", reference)):
        if time is not None and time.samples_ms and time.n != len(time.samples_ms):
            yield f"{time.n} times of the {side}, and {len(time.samples_ms)} are there"
    if kernel is None or reference is None or verdict.speedup is None or not kernel.median_ms > 0:
        return
    quotient = reference.median_ms / kernel.median_ms
    # One that is no number is told of by itself.
    both = math.isfinite(quotient) and math.isfinite(verdict.speedup)
    if both and not math.isclose(quotient, verdict.speedup, rel_tol=1e-6):
        yield f"a speedup of {verdict.speedup:g}, by its times {quotient:g}"


def _question(episode: Episode, turn: Turn, rules: Rules) -> Iterator[str]:
    model, sampling = turn.completion.model, turn.completion.sampling
    if rules.model is not None and model != rules.model:
        yield f"turn {turn.index} is an answer of {model}, the run's are of {rules.model}"
    if rules.sampling is not None and sampling.model_copy(update={"seed": None}) != rules.sampling:
        yield f"turn {turn.index} was not asked with the sampling of the run"
    if rules.seed is not None:
        seed = request_seed(rules.seed, episode.task.task_id, episode.sample, episode.attempt, turn.index)
        if sampling.seed != seed:
            yield f"turn {turn.index} was asked with seed {sampling.seed}, by the run's it is {seed}"
