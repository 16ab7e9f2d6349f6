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
from kb_ray.exporting.sieve import Sieve
from kb_ray.learn.chat import Chat, ChatTokens
from kb_ray.learn.samples import Made, Sample
from kb_ray.retrieve.leaking import Asked, same_program
from kb_ray.traces.reading import Survey, read_episodes

LEAK_OVERLAP = 0.9
"""Share of what two programs are made of, from which one counts as the other in disguise."""


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


def of_store(found: Survey, options: ExportOptions) -> Iterator[Dialogue]:
    """The conversations of the view `sft`, one for each episode that has any, with their tasks."""
    sieve = Sieve(options.filters, options.near_duplicates)
    for episode in filter(sieve.episode, read_episodes(found)):
        turn = sft.chosen(episode, options)
        if turn is None or not sieve.answer(episode.task, turn.verdict):
            continue
        whole = options.conversation == "whole"
        messages = through(episode, turn.index) if whole else (*opening(episode), reply(turn))
        task = episode.task
        yield Dialogue(as_chat(messages, options.reasoning), task.task_id, task.reference_code, task.entry_point)


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
    """Samples of at most `limit` dialogues. Left out: `too_long` (over `most_tokens`), `empty` (no answer in it)."""
    samples, left_out, count = list[Sample](), Counter[str](), 0
    for dialogue in dialogues:
        if limit is not None and count >= limit:
            break
        marked = chat.sequences(dialogue.messages)
        usable = [one for one in marked if any(one.trained) and len(one.tokens) <= most_tokens]
        left_out["too_long"] += sum(len(one.tokens) > most_tokens for one in marked)
        left_out["empty"] += not marked
        count += bool(usable)
        samples += [Sample(one.tokens, one.trained, task_id=dialogue.task_id) for one in usable]
    return Made(tuple(samples), left_out, count)


def require(made: Made, refused: int, where: Sequence[str], most_tokens: int) -> None:
    """ConfigError, in one line with the reasons, where nothing is left to learn from."""
    if made.samples:
        return
    reasons = [f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(made.left_out.items()) if count]
    reasons = [f"{told} ({most_tokens} tokens)" if told.endswith("too long") else told for told in reasons]
    if refused:
        reasons.append(f"{refused} of tasks that are to be kept clean")
    raise ConfigError(f"nothing to learn from in {', '.join(where)}: {', '.join(reasons) or 'no correct kernel'}")
