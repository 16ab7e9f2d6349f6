"""Decides what an export leaves out, and counts it under the name of the flag that asked for it.

Episodes and verdicts only; does not know views, files or where the episodes come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kb_ray.exporting.duplicates import Duplicates
from kb_ray.exporting.options import Filters
from kb_ray.records import Episode, Task, Verdict
from kb_ray.tasks.quality import excluding

EpisodeTest = tuple[str, Callable[[Episode], bool]]
AnswerTest = tuple[str, Callable[[Task, Verdict], bool]]


def flags_of(task: Task, verdict: Verdict) -> frozenset[str]:
    """What is held against the task or noted in the verdict."""
    return frozenset(task.flags) | frozenset(verdict.evidence.flags)


def trusted_speedup(verdict: Verdict) -> float | None:
    """The speedup where it may be relied on."""
    return verdict.speedup if verdict.correct and verdict.trusted else None


def sound(task: Task, verdict: Verdict) -> bool:
    """Whether a correct verdict may be learned from: trusted, or without a GPU and with nothing held against it."""
    on_cpu = verdict.env.device == "cpu"
    return verdict.correct and (verdict.trusted or (on_cpu and not excluding(flags_of(task, verdict))))


class Sieve:
    """The filters of one export with their counts."""

    def __init__(self, filters: Filters, near_duplicates: float | None = None) -> None:
        self.removed: Counter[str] = Counter()
        """How much each filter took away: `--source builtin` -> episodes, the others -> answers."""
        self.episodes = 0
        """Episodes looked at."""
        self._of_episodes = list(_episode_tests(filters))
        self._of_answers = list(_answer_tests(filters))
        self._near = near_duplicates
        self._seen: dict[bool, Duplicates] = {}

    @property
    def asks_of_answers(self) -> bool:
        """Whether any filter is about answers."""
        return bool(self._of_answers)

    def episode(self, episode: Episode) -> bool:
        """Whether it passes; counts it."""
        self.episodes += 1
        return self._passes(self._of_episodes, lambda test: test(episode))

    def answer(self, task: Task, verdict: Verdict) -> bool:
        """Whether an answer with this verdict passes."""
        return self._passes(self._of_answers, lambda test: test(task, verdict))

    def count(self, what: str) -> None:
        """One more answer that the view leaves out by itself, or of which the account is to say something."""
        self.removed[what] += 1

    def novel(self, task: Task, code: str | None, *, correct: bool) -> bool:
        """False where a right (or a wrong) answer like this one was let through before."""
        if self._near is None or code is None:
            return True
        seen = self._seen.setdefault(correct, Duplicates(self._near))
        if seen.add(task.task_id, task.reference_code, code):
            return True
        self.removed[f"--near-duplicates {self._near:g}"] += 1
        return False

    def account(self) -> str:
        """What was removed, in words: `--source x removed 3 episodes, --status ok removed 2 answers`."""
        of_episodes = [name for name, _ in self._of_episodes]
        order = [*of_episodes, *(name for name, _ in self._of_answers), *self.removed]
        parts = [
            f"{name} removed {_count(self.removed[name], 'episode' if name in of_episodes else 'answer')}"
            if name.startswith("--")
            else f"{self.removed[name]} {name}"
            for name in dict.fromkeys(order)
            if self.removed[name]
        ]
        return ", ".join(parts) or "no filter removed anything"

    def _passes(
        self, tests: list[tuple[str, Callable[..., bool]]], holds: Callable[[Callable[..., bool]], bool]
    ) -> bool:
        for name, test in tests:
            if not holds(test):
                self.removed[name] += 1
                return False
        return True


def _episode_tests(filters: Filters) -> Iterator[EpisodeTest]:
    if filters.source:
        yield f"--source {_listed(filters.source)}", lambda episode: episode.task.source in filters.source
    if filters.level:
        yield f"--level {_listed(filters.level)}", lambda episode: episode.task.level in filters.level


def _answer_tests(filters: Filters) -> Iterator[AnswerTest]:
    if filters.status:
        yield f"--status {_listed(filters.status)}", lambda _, verdict: str(verdict.status) in filters.status
    if filters.trusted:
        yield "--trusted", lambda _, verdict: verdict.trusted
    if filters.exclude_flagged:
        yield "--exclude-flagged", lambda task, verdict: not excluding(flags_of(task, verdict))
    if filters.with_flag:
        yield (
            f"--flag {_listed(filters.with_flag)}",
            lambda task, verdict: bool(filters.with_flag & flags_of(task, verdict)),
        )
    if filters.without_flag:
        yield (
            f"--without-flag {_listed(filters.without_flag)}",
            lambda task, verdict: not (filters.without_flag & flags_of(task, verdict)),
        )
    low, high = filters.min_speedup, filters.max_speedup
    if low is not None:
        yield f"--min-speedup {low:g}", lambda _, verdict: (trusted_speedup(verdict) or -1.0) >= low
    if high is not None:
        yield f"--max-speedup {high:g}", lambda _, verdict: 0.0 < (trusted_speedup(verdict) or 0.0) <= high


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _listed(values: frozenset[str] | frozenset[int]) -> str:
    return ",".join(sorted(map(str, values)))
