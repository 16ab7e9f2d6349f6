"""Puts an episode's question to the model: waits for a place, fits the conversation into the window, sends it.

What is given up to make it fit is prompts/budget.py's to say, whether it fits window.py's, and what follows an
answer is refine.py's. An answer, a conversation that fits no longer and a model that does not answer all come back as
events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kb_ray.config import RunConfig
from kb_ray.errors import ContextError, ModelError
from kb_ray.model.completer import Completer, Request
from kb_ray.places import Places
from kb_ray.prompts.budget import Messages
from kb_ray.records import Completion
from kb_ray.refine import Answered, ContextExhausted, Event, ModelFailed, State, requests
from kb_ray.tally import Tally
from kb_ray.traces.run import request_seed
from kb_ray.window import Window


class Asking:
    """All questions of one start of a run; at most `--batch-size` of them are with the model at once."""

    def __init__(self, config: RunConfig, completer: Completer, tally: Tally) -> None:
        self._config, self._completer, self._tally = config, completer, tally
        self._places = Places(config.batch_size)
        self._window = Window(config, completer)

    async def ask(self, state: State, *, sample: int, attempt: int, stopping: Callable[[], bool]) -> Event | None:
        """The model's answer as an event; None where the run stops before the request is sent."""
        turn, task = len(state.turns), state.task
        seed = request_seed(self._config.seed, task.task_id, sample, attempt, turn)
        request = Request(
            messages=state.messages,
            sampling=self._config.sampling(seed),
            task_id=task.task_id,
            turn=turn,
            sample=sample,
            attempt=attempt,
        )
        self._tally.waiting_on_model += 1
        try:
            asked = time.monotonic()
            # Running episodes go first: they hold memory and are closest to being safe in the store.
            async with self._places.take(0 if turn else 1):
                if stopping():
                    return None
                sent = time.monotonic()
                self._tally.generating += 1
                try:
                    messages, completion = await self._answer(request, requests(state))
                finally:
                    self._tally.generating -= 1
        except ContextError as error:
            return ContextExhausted(message=str(error))
        except ModelError as error:
            return ModelFailed(message=str(error))
        finally:
            self._tally.waiting_on_model -= 1
        self._tally.completed(completion)
        return Answered(
            completion=completion,
            sent=messages,
            model_queue_s=sent - asked,
            model_s=time.monotonic() - sent,
        )

    async def _answer(self, request: Request, choices: Sequence[Messages]) -> tuple[Messages, Completion]:
        """What was sent and what came back. A server that refuses a form as too long gets the next shorter one."""
        index = await self._first_fitting(choices)
        while True:
            messages = choices[index]
            try:
                return messages, await self._completer.complete(request.model_copy(update={"messages": messages}))
            except ContextError:
                index += 1
                if index == len(choices):
                    raise

    async def _first_fitting(self, choices: Sequence[Messages]) -> int:
        """Index of the longest form that fits with the answer. ContextError where not even the last one does."""
        room = self._window.room
        if room is None or await self._window.tokens(choices[0]) <= room:
            return 0
        least = await self._window.tokens(choices[-1])
        if least > room:
            raise ContextError(
                f"the prompt has {least} tokens at its shortest and the answer up to {self._config.max_tokens}, but "
                f"the window of {self._completer.model} holds {self._window.size}: lower --max-tokens, or use "
                "--prompt terse"
            )
        too_long, fits = 0, len(choices) - 1
        while fits - too_long > 1:
            middle = (too_long + fits) // 2
            if await self._window.tokens(choices[middle]) <= room:
                fits = middle
            else:
                too_long = middle
        return fits
