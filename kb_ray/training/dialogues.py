"""Conversations to learn from: out of trace stores, without tasks that an evaluation will ask, as tokens.

Whatever is left out is counted by its reason and never cut silently. Knows texts and a chat template, no weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kb_ray.errors import ConfigError
from kb_ray.exporting import sft
from kb_ray.exporting.answers import as_chat, opening, reply, through
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.sieve import Sieve, sound
from kb_ray.learn.chat import Chat, ChatTokens
from kb_ray.learn.samples import Made, Sample
from kb_ray.records import Episode, Turn
from kb_ray.retrieve.leaking import Asked, same_program
from kb_ray.traces.reading import Survey, read_episodes

LEAK_OVERLAP = 0.9
"""Share of what two programs are made of, from which one counts as the other in disguise."""
PARTLY = "answers_of_these_too_long"
"""Of conversations that are learned from otherwise."""
Program = tuple[str, str | None]
"""A reference and its class or function; None where that is to be guessed."""


@dataclass(frozen=True)
class Dialogue:
    """One conversation that ends in an answer worth imitating."""

    messages: Chat
    task_id: str
    program: str
    """The task's reference: what makes it the same task as another."""
    entry_point: str | None = None
    """The reference's class or function; None where it is to be guessed."""


class OfStore:
    """The conversations of the view `sft`, one for each episode that has any, with their tasks."""

    def __init__(self, found: Survey, options: ExportOptions) -> None:
        self._found, self._options = found, options
        self.left_out = Counter[str]()
        """Episodes without a conversation so far, by reason: with those that have one they are all that were read."""

    def __iter__(self) -> Iterator[Dialogue]:
        options, sieve = self._options, Sieve(self._options.filters, self._options.near_duplicates)
        for episode in read_episodes(self._found):
            turn = sft.chosen(episode, options)
            if turn is None:
                self.left_out[_without(episode, options)] += 1
            elif not sieve.episode(episode) or not sieve.answer(episode.task, turn.verdict):
                self.left_out["filtered"] += 1
            else:
                yield _dialogue(episode, turn, options)


def _dialogue(episode: Episode, turn: Turn, options: ExportOptions) -> Dialogue:
    whole = options.conversation == "whole"
    messages = through(episode, turn.index) if whole else (*opening(episode), reply(turn))
    task = episode.task
    return Dialogue(as_chat(messages, options.reasoning), task.task_id, task.reference_code, task.entry_point)


def _without(episode: Episode, options: ExportOptions) -> str:
    """Why none of an episode's turns is chosen."""
    if not episode.turns or options.keep in ("all", "best"):
        return "without an answer"
    if not any(turn.verdict.correct for turn in episode.turns):
        return "without a correct kernel"
    if not any(sound(episode.task, turn.verdict) for turn in episode.turns):
        return "without a correct kernel that is trusted"
    return "without a kernel that is fast enough"


class Clean:
    """Refuses tasks that an evaluation will ask, also under other names and in near copies."""

    def __init__(self, programs: Iterable[str | Program], threshold: float = LEAK_OVERLAP) -> None:
        """`programs`: references of the tasks to be kept out, with their entry points where these are known."""
        told = [(program, None) if isinstance(program, str) else program for program in programs]
        self._kept_out = [Asked.of(*program) for program in told]
        self._threshold = threshold
        self.refused = 0
        """Dialogues left out so far."""

    def __call__(self, dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
        """Those that give nothing away."""
        told: dict[Program, bool] = {}
        for dialogue in dialogues:
            program = (dialogue.program, dialogue.entry_point)
            if program not in told:
                told[program] = self._leaks(program)
            if told[program]:
                self.refused += 1
            else:
                yield dialogue

    def _leaks(self, program: Program) -> bool:
        asked = Asked.of(*program)
        return any(same_program(asked, task, self._threshold) for task in self._kept_out)


def as_samples(dialogues: Iterable[Dialogue], chat: ChatTokens, most_tokens: int, limit: int | None = None) -> Made:
    """Samples of at most `limit` dialogues, at which no more is read.

    Left out are whole dialogues: `too_long`, with no answer within `most_tokens`, and `empty`, without an answer; and
    `answers_of_these_too_long`, of dialogues that are samples otherwise.
    """
    samples, left_out, count = list[Sample](), Counter[str](), 0
    for dialogue in dialogues:
        marked = chat.sequences(dialogue.messages)
        usable = [one for one in marked if any(one.trained) and len(one.tokens) <= most_tokens]
        long = sum(len(one.tokens) > most_tokens for one in marked)
        if usable:
            count += 1
            left_out[PARTLY] += long
        else:
            left_out["too_long" if long else "empty"] += 1
        samples += [Sample(one.tokens, one.trained, task_id=dialogue.task_id) for one in usable]
        if count == limit:
            break
    return Made(tuple(samples), left_out, count)


def account(made: Made, refused: int, limit: int | None) -> str:
    """One line: what is learned from, and what of all that was read is not, by reason; these add up.

    `refused`: dialogues of tasks that are kept clean; `limit`: dialogues asked for at most.
    """
    whole = Counter({reason: n for reason, n in made.left_out.items() if n and reason != PARTLY})
    whole += Counter({"of tasks kept clean": refused})
    read = made.groups + whole.total()
    of = f" in {made.groups} conversations" if made.groups != len(made.samples) else ""
    said = f"samples:  {len(made.samples)}{of}"
    if whole:
        left = [f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(whole.items())]
        said += f"; of {read} that were read, left out: {', '.join(left)}"
    if made.left_out[PARTLY]:
        said += f"; {made.left_out[PARTLY]} {PARTLY.replace('_', ' ')}"
    return said + (f"; nothing more was read: --samples {limit}" if made.groups == limit else "")


def require(made: Made, refused: int, where: Sequence[str], most_tokens: int) -> None:
    """ConfigError, in one line with the reasons, where nothing is left to learn from."""
    if made.samples:
        return
    reasons = [f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(made.left_out.items()) if count]
    reasons = [f"{told} ({most_tokens} tokens)" if told.endswith("too long") else told for told in reasons]
    if refused:
        reasons.append(f"{refused} of tasks that are to be kept clean")
    raise ConfigError(f"nothing to learn from in {', '.join(where)}: {', '.join(reasons) or 'no correct kernel'}")
