"""The second document's whole run: SFT, then best-of-N from its last checkpoint. Started again it goes on where it was.

Each stage is a run of its own, in a place of its own below the output, and the second asks the first one's place for
its checkpoint: what is trained cannot be looked for elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kb_ray import checkpoints
from kb_ray.traces.store import open_store
from kb_ray.training import sft_run
from kb_ray.training.rl_settings import BestOfNSettings
from kb_ray.training.settings import SftSettings
from kb_ray.training.sft_run import Say
from kb_ray.training.whole_settings import WholeSettings

BestOfN = Callable[[BestOfNSettings], Awaitable[int]]
"""Runs best-of-N; optimizer steps taken in all."""


async def run(settings: WholeSettings, best_of_n: BestOfN, say: Say, device: str | None = None) -> int:
    """The stages that are asked for and not over yet; optimizer steps of all of them together."""
    steps, sft = 0, settings.sft()
    if settings.stage != "rl":
        say(f"stage:    SFT, into {sft.output}")
        steps += _over(sft) or sft_run.run(sft, say, device)
    if settings.stage != "sft":
        second = settings.best_of_n()
        say(f"stage:    best-of-N, from {second.start_from} into {second.output}")
        steps += await best_of_n(second)
    return steps


def _over(settings: SftSettings) -> int | None:
    """Steps of a run of SFT that is over; None where there is none, or something is left to do."""
    found = checkpoints.latest(open_store(settings.output))
    if found is None or found.fingerprint != settings.fingerprint():
        return None
    if checkpoints.differing_base(found, settings.learning(None).model, {}) is not None:
        # Its weights tell whether it is another model: they are loaded, and compared, by who goes on with the run.
        return None
    return found.step if found.step == found.progress.get("steps") else None
