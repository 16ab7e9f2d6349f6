"""Which learner a run has, and what draws answers from it: in this process, in several, or at Tinker's service.

Decides by settings alone; how each learns is its own.
"""

from __future__ import annotations

from collections.abc import Callable

from kb_ray.errors import ConfigError
from kb_ray.learn.in_process import InProcessSampler
from kb_ray.learn.learner import Learner
from kb_ray.learn.rollouts import Sampler
from kb_ray.learn.stepping import Trainee
from kb_ray.learn.tinker import TinkerLearner
from kb_ray.learn.tinker_sampler import TinkerSampler
from kb_ray.training.group import GroupLearner
from kb_ray.training.placing import place
from kb_ray.training.rl_settings import BestOfNSettings, GrpoSettings
from kb_ray.training.settings import TrainSettings


def _say(line: str) -> None:
    print(line, flush=True)


def learner_of(settings: TrainSettings, device: str | None = None, say: Callable[[str], None] = _say) -> Trainee:
    """The learner, with a fresh adapter. ConfigError where it cannot be had, InfraError where no room for it comes.

    `device`: of the one in this process; None: the GPU where there is one. For several, Ray must be connected; `say`
    is told, in one line, where they wait for nodes.
    """
    if settings.learner == "tinker":
        _for_tinker(settings)
        return TinkerLearner(settings.learning(None))
    if settings.train_workers == 1:
        return Learner(settings.learning(None), device)
    import ray

    seats = place(settings.train_workers, ray.nodes())
    if seats.lacking:
        say(f"waiting:  for {seats.lacking} GPUs on nodes still to come; each process takes {seats.need}")
    return GroupLearner(settings.learning(None), settings.train_workers, seats)


def sampler_of(learner: Trainee, run: str, settings: BestOfNSettings | GrpoSettings) -> Sampler:
    """What draws answers of the learner's policy as it is."""
    if isinstance(learner, TinkerLearner):
        return TinkerSampler(learner, run, settings.sampling())
    assert isinstance(learner, Learner | GroupLearner)
    return InProcessSampler(learner, run, settings.sampling(), settings.rollout_tokens)


def _for_tinker(settings: TrainSettings) -> None:
    """ConfigError for what cannot be asked of the service."""
    if settings.train_workers > 1:
        raise ConfigError("--train-workers: Tinker trains on machines of its own: leave it at 1")
    if settings.load_in_8bit:
        raise ConfigError("--load-in-8bit: Tinker decides how it holds the base model: leave it off")
    if isinstance(settings, GrpoSettings) and settings.kl_beta > 0:
        raise ConfigError("--kl-beta: Tinker learns without the distance from the base model: leave it at 0")
    if isinstance(settings, BestOfNSettings | GrpoSettings) and settings.temperature != 1.0:
        raise ConfigError("--temperature: Tinker compares probabilities at temperature 1: leave it there")
