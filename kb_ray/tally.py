"""Counters of one start of a run: what was done, how it ended, how fast it goes.

Plain numbers, no clock of its own and no display: the driver counts, observe.py shows, and what happens is passed
on to a meter. Keeps no episode, so its size does not grow with the run.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from kb_ray.records import REDONE_ON_RESUME, Completion, Episode, Turn
from kb_ray.watching import meter as measuring
from kb_ray.watching.meter import Meter, Silent

_WINDOW_S = 60.0


@dataclass(frozen=True)
class Rates:
    """Speed over the last minute, or since the start where that is shorter."""

    verdicts_per_min: float
    tokens_per_s: float
    eta_s: float | None
    """Seconds until all is done at the speed of this start so far; None before the first episode."""


@dataclass
class Tally:
    """Mutable, for one event loop. `now` is always a monotonic clock in seconds."""

    total: int
    """Episodes that the run will hold, those of earlier starts included."""
    earlier: int
    """Episodes that earlier starts finished."""
    started: float
    finished: int = 0
    """Episodes finished by this start, second attempts included."""
    retries: int = 0
    """Second attempts that were added to the plan."""
    stop_reasons: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    """Verdicts of turns, those of episodes still under way included."""
    last_failure: str | None = None
    """Why the last episode failed that another start will try again."""
    success_turns: Counter[int] = field(default_factory=Counter)
    """1-based turn of the first correct kernel -> episodes."""
    verdicts: int = 0
    """Those that the verifier gave: turns without code are in `statuses` only."""
    tokens: int = 0
    """Tokens generated."""
    gpu_s: float = 0.0
    """Seconds of GPU time that verdicts took."""
    best_speedup: float | None = None
    waiting_on_model: int = 0
    """Episodes with a question to the model that is not answered yet."""
    generating: int = 0
    """Those of them whose question is with the model."""
    waiting_on_bench: int = 0
    meter: Meter = field(default_factory=Silent)
    _marks: deque[tuple[float, int, int]] = field(default_factory=deque)

    def completed(self, completion: Completion) -> None:
        """The model answered."""
        self.tokens += completion.usage.completion_tokens
        measuring.answered(self.meter, completion)

    def turned(self, turn: Turn) -> None:
        """A turn has its verdict. Waiting for a GPU costs no GPU time."""
        measuring.judged(self.meter, turn)
        verdict = turn.verdict
        self.statuses[verdict.status.value] += 1
        if turn.triton_code is None:
            return
        self.verdicts += 1
        if verdict.env.device == "cuda":
            waited = sum(seconds for phase, seconds in verdict.seconds.items() if phase.startswith("queue"))
            self.gpu_s += verdict.seconds.get("total", 0.0) - waited

    def ended(self, episode: Episode) -> None:
        """An episode is over and handed to the store."""
        measuring.ended(self.meter, episode)
        self.finished += 1
        self.stop_reasons[episode.stop_reason.value] += 1
        if episode.stop_reason in REDONE_ON_RESUME:
            self.last_failure = episode.error
        first = next((turn.index for turn in episode.turns if turn.verdict.correct), None)
        if first is not None:
            self.success_turns[first + 1] += 1
        for turn in episode.turns:
            verdict = turn.verdict
            if verdict.correct and verdict.trusted and verdict.speedup is not None:
                self.best_speedup = max(self.best_speedup or 0.0, verdict.speedup)

    @property
    def done(self) -> int:
        """Episodes finished by this start and earlier ones."""
        return self.earlier + self.finished

    @property
    def to_redo(self) -> int:
        """Episodes of this start that another start will try again."""
        return sum(self.stop_reasons[reason.value] for reason in REDONE_ON_RESUME)

    def rates(self, now: float) -> Rates:
        """Speeds at `now`. Each call is also a mark for later ones: call it when something is shown."""
        self._marks.append((now, self.verdicts, self.tokens))
        while len(self._marks) > 1 and now - self._marks[1][0] >= _WINDOW_S:
            self._marks.popleft()
        then, verdicts, tokens = self._marks[0] if len(self._marks) > 1 else (self.started, 0, 0)
        elapsed = max(now - then, 1e-3)
        left = self.total + self.retries - self.done
        eta = left * (now - self.started) / self.finished if self.finished else None
        return Rates(
            verdicts_per_min=60 * (self.verdicts - verdicts) / elapsed,
            tokens_per_s=(self.tokens - tokens) / elapsed,
            eta_s=eta,
        )
