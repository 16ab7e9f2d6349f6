"""One learner in several processes: Ray Train starts them, one to a GPU, and they take each step together.

Every process has the whole model and learns from its share of a step's samples; their gradients are added up, so that
the weights are those that one process would have. Answers are drawn in shares too. Here is only who is asked what: how
a step is shared is `learn.peers`' to say.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from kb_ray.errors import InfraError, KbRayError
from kb_ray.learn.generating import Drawing
from kb_ray.learn.learner import Learner
from kb_ray.learn.network import tokenizer_of
from kb_ray.learn.objective import LearnerSettings, Objective
from kb_ray.learn.peers import Together
from kb_ray.learn.samples import Drawn, Sample
from kb_ray.learn.stepping import Elsewhere, StepReport, learning_rate
from kb_ray.training.mailbox import Mailbox
from kb_ray.training.placing import Seats

_LOOK_S = 2.0
"""Seconds between looks at whether the processes still live, while one waits for them."""
_END_S = 60.0


class GroupLearner:
    """A `stepping.Trainee` made of several. Ray must be connected. Used by one thread at a time."""

    def __init__(self, settings: LearnerSettings, processes: int, seats: Seats) -> None:
        """ConfigError where the model cannot be loaded or does not fit, InfraError where processes do not start in
        time."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.settings, self.steps = settings, 0
        self.tokenizer = tokenizer_of(settings.model)
        # On this node: any other may be where strangers' code runs, or go before the run does.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote(processes)
        self._scratch = tempfile.TemporaryDirectory(prefix="kb_ray_train_")
        self._started = False
        self._ended: BaseException | None = None
        self._processes = threading.Thread(target=self._run, args=(processes, seats), daemon=True)
        self._processes.start()
        try:
            # Nodes may have to boot; how long a model then loads is its own affair.
            late = f"no room within {seats.start_s / 60:g} minutes for {processes} processes that learn, each with"
            self._all("here", within_s=seats.start_s, late=f"{late} {seats.need}: see `ray status -v`")
            self._started = True
            self.window: int | None = self._first("load", _somewhere(settings))
        except BaseException:
            self.close()
            raise

    def learning_rate(self) -> float:
        """Of the next step."""
        return learning_rate(self.settings, self.steps)

    def step(self, samples: Sequence[Sample], objective: Objective) -> StepReport:
        """One optimizer step over all of `samples`."""
        return self.epoch(samples, objective, parts=1)[0]

    def epoch(self, samples: Sequence[Sample], objective: Objective, parts: int) -> list[StepReport]:
        """As many optimizer steps as `parts`, each over its share, all against the weights before them."""
        reports: list[StepReport] = self._first("epoch", self.settings.total_steps, list(samples), objective, parts)
        self.steps += len(reports)
        return reports

    def draw(
        self, prompts: Sequence[tuple[int, ...]], drawing: Drawing, ends: Collection[int], seed: int
    ) -> list[Drawn]:
        """One answer to each prompt, in their order, each process its share of them."""
        found: dict[int, Drawn] = {}
        for share in self._all("draw", list(prompts), drawing, frozenset(ends), seed):
            found |= share
        return [found[place] for place in range(len(prompts))]

    def adapter(self) -> dict[str, bytes]:
        """The adapter's files, of the first process: all have the same."""
        files: dict[str, bytes] = self._first("adapter")
        return files

    def state(self) -> dict[str, Any]:
        """Optimizer, steps and random states of the first process."""
        state: dict[str, Any] = torch.load(io.BytesIO(self._first("state")), weights_only=True, map_location="cpu")
        return state

    def restore(self, state: dict[str, Any], weights: bytes | None = None) -> None:
        """Take up a state in all processes."""
        self._all("restore", state, weights)
        self.steps = int(state["steps"])

    def begin_with(self, weights: bytes | None, state: dict[str, Any] | None = None) -> None:
        """Begin with an adapter's weights in all processes."""
        self._all("begin_with", weights)

    def base_weights(self) -> dict[str, str]:
        """Fingerprints of the base model's weights, by part, of the first process."""
        found: dict[str, str] = self._first("base_weights")
        return found

    def close(self) -> None:
        """End the processes. Those that wait for room are Ray's to forget, when it is left."""
        import ray

        if self._started and self._processes.is_alive():
            self._mailbox.ask.remote("end", ())
            self._processes.join(_END_S)
        ray.kill(self._mailbox)
        self._scratch.cleanup()

    def _first(self, name: str, *arguments: Any) -> Any:
        return self._all(name, *arguments)[0]

    def _all(self, name: str, *arguments: Any, within_s: float = math.inf, late: str = "") -> list[Any]:
        """Every process's answer. What one of them raises is raised here, the cause before its consequences.

        InfraError `late` where they have not all answered within `within_s` seconds.
        """
        import ray

        asked, give_up = self._mailbox.ask.remote(name, arguments), time.monotonic() + within_s
        while not ray.wait([asked], timeout=_LOOK_S)[0]:
            if not self._processes.is_alive():
                raise InfraError(f"a process that learns has ended: {_line(self._ended)}; start the same command again")
            if time.monotonic() > give_up:
                raise InfraError(late)
        answers: list[Any] = ray.get(asked)
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        if failures:
            raise next((error for error in failures if not isinstance(error, Elsewhere)), failures[0])
        return answers

    def _run(self, processes: int, seats: Seats) -> None:
        """The processes' whole life, in a thread of its own; why it ended is kept."""
        # Paths are as they were given: processes stay where the run was started.
        os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        try:
            TorchTrainer(
                _process,
                train_loop_config={"mailbox": self._mailbox},
                scaling_config=ScalingConfig(
                    num_workers=processes, use_gpu=seats.gpus, label_selector=seats.labels or None
                ),
                run_config=RunConfig(
                    name="kb_ray", storage_path=self._scratch.name, failure_config=FailureConfig(max_failures=0)
                ),
            ).fit()
        # What Ray Train raises is told by whoever waits for an answer.
        except Exception as error:
            self._ended = error


class _Process:
    """What one process does when it is asked; its methods are the calls."""

    def here(self) -> None:
        """Answered as soon as the process lives."""

    def load(self, settings: LearnerSettings) -> int | None:
        from ray.train.torch import get_device

        if torch.cuda.is_available():
            torch.cuda.set_device(get_device())
        self._peers = Together()
        self._learner = Learner(settings, peers=self._peers)
        return self._learner.window

    def epoch(
        self, total_steps: int | None, samples: list[Sample], objective: Objective, parts: int
    ) -> list[StepReport]:
        self._learner.settings = self._learner.settings.model_copy(update={"total_steps": total_steps})
        return self._learner.epoch(samples, objective, parts)

    def draw(
        self, prompts: list[tuple[int, ...]], drawing: Drawing, ends: frozenset[int], seed: int
    ) -> dict[int, Drawn]:
        share = self._peers.share(len(prompts))
        # Of the same prompt two processes are not to give the same answer.
        answers = self._learner.draw([prompts[i] for i in share], drawing, ends, seed + self._peers.rank)
        return dict(zip(share, answers, strict=True))

    def adapter(self) -> dict[str, bytes]:
        return self._learner.adapter()

    def state(self) -> bytes:
        # As bytes: the run may be where there is no GPU.
        buffer = io.BytesIO()
        torch.save(self._learner.state(), buffer)
        return buffer.getvalue()

    def restore(self, state: dict[str, Any], weights: bytes | None) -> None:
        self._learner.restore(state, weights)

    def begin_with(self, weights: bytes | None) -> None:
        self._learner.begin_with(weights)

    def base_weights(self) -> dict[str, str]:
        return self._learner.base_weights()


def _process(config: dict[str, Any]) -> None:
    """The life of one process: calls as they come, until the one that ends it."""
    import ray
    from ray import train

    mailbox, process, done = config["mailbox"], _Process(), 0
    rank = train.get_context().get_world_rank()
    while True:
        done, name, arguments = ray.get(mailbox.after.remote(done))
        outcome: Any = None
        if name != "end":
            outcome = _tried(process, name, arguments)
        ray.get(mailbox.answer.remote(done, rank, outcome))
        if name == "end":
            return
        if isinstance(outcome, InfraError):
            # The others may wait for this one's part of a step: with it the whole group ends.
            raise outcome


def _tried(process: _Process, name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return getattr(process, name)(*arguments)
    except KbRayError as error:
        return type(error)(str(error))
    # Anything else is a mistake of ours; the run is to end with its words, not with a lost process.
    except Exception as error:
        return InfraError(f"a process that learns failed at {name}: {_line(error)}")


def _somewhere(settings: LearnerSettings) -> LearnerSettings:
    """With the model's folder in full: processes may run in another one."""
    folder = Path(os.path.expanduser(settings.model))
    return settings.model_copy(update={"model": str(folder.resolve())}) if folder.is_dir() else settings


def _line(error: BaseException | None) -> str:
    text = str(error) if error is not None else "its group is over"
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), type(error).__name__)[:300]
