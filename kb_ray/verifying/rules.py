"""What a run's own settings say that its episodes must keep to (pure). Looks at no episode."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from kb_ray.records import Sampling
from kb_ray.refine import Policy
from kb_ray.traces.run import RunInfo
from kb_ray.wording import wording

T = TypeVar("T")
_SAYS_ABOUT = 5
"""Schema version since which a verdict says what it is about."""


@dataclass(frozen=True)
class Rules:
    """What is known of the run; None: unknown, and not checked."""

    run_id: str | None = None
    fingerprint: str | None = None
    policy: Policy | None = None
    """When its episodes end."""
    index: str | None = None
    """Hash of the index of its examples; empty where it shows none."""
    model: str | None = None
    """What every answer says it is of."""
    sampling: Sampling | None = None
    """What every answer was asked with, but for the seed."""
    seed: int | None = None
    """From which that of each question follows."""
    device: str | None = None
    verifier: str | None = None
    """Where every verdict was reached, and by which version."""
    sets: int | None = None
    """Input sets that every candidate was tried on."""
    says_about: bool = False
    """Whether each verdict says which candidate it is about."""
    same_wording: bool = False
    """Whether it was written with this very wording and extraction."""
    prompt: str | None = None
    """Its template: hash of the text, in training the name."""
    asked_for: str | None = None
    """Device that its prompts speak of."""
    rejudged: bool = False
    """Whether verdicts were given again later: what was said and decided then followed from others."""


def rules_of(run: RunInfo | None) -> Rules:
    """What the run says its episodes must keep to."""
    if run is None:
        return Rules()
    turns, target = run.identity.get("turns"), run.identity.get("target-speedup")
    sets, policy = run.identity.get("n-correctness") or 5, None
    with suppress(ValidationError):
        if isinstance(turns, int) and isinstance(target, int | float):
            policy = Policy.model_validate({"max_turns": turns, "target_speedup": target, "n_correctness": sets})
    rejudged = "verified again from" in run.identity
    model, sampling = run.identity.get("model"), _sampling(run.identity)
    return Rules(
        run_id=run.run_id,
        fingerprint=run.fingerprint,
        policy=policy,
        index=str(run.identity.get("rag-index") or "") if policy else None,
        model=model if isinstance(model, str) and not trained(run) else None,
        sampling=sampling,
        seed=_of(int, run, "seed") if sampling else None,
        device=_of(str, run, "judged_on" if trained(run) and not rejudged else "device"),
        verifier=_of(str, run, "verifier version"),
        sets=_of(int, run, "n-correctness"),
        says_about=run.schema_version >= _SAYS_ABOUT,
        same_wording=run.versions.get("wording") == wording(),
        prompt=_of(str, run, "prompt_option" if trained(run) else "prompt"),
        asked_for=_of(str, run, "judged_on") if trained(run) else None if rejudged else _of(str, run, "device"),
        rejudged=rejudged,
    )


def trained(run: RunInfo) -> bool:
    """Whether it is one of training, whose identity has its command's own names."""
    return "command" in run.identity


def _of(kind: type[T], run: RunInfo, name: str) -> T | None:
    value = run.identity.get(name)
    return value if isinstance(value, kind) else None


def _sampling(identity: dict[str, Any]) -> Sampling | None:
    """Of all three, by the names of generation: training names its own otherwise."""
    names = ("temperature", "top-p", "max-tokens")
    with suppress(KeyError, ValidationError):
        temperature, top_p, max_tokens = (identity[name] for name in names)
        return Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens)
    return None
