"""The policy of a learner at Tinker's service as a sampler there: each step's weights are published before they answer.

Knows the SDK's answers; who asked and what an answer is worth is told nowhere here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kb_ray.learn.own_policy import OwnPolicy
from kb_ray.learn.samples import Drawn
from kb_ray.learn.tinker import TinkerFailure, TinkerLearner, asked
from kb_ray.records import Sampling


class TinkerSampler(OwnPolicy):
    """A `rollouts.Sampler`. Draws with the weights of the learner's last step."""

    def __init__(self, learner: TinkerLearner, run: str, sampling: Sampling) -> None:
        import tinker

        super().__init__(learner, run, sampling)
        self._learner, self._sdk = learner, tinker
        self.window = learner.window
        self._published: tuple[int, Any] | None = None

    async def draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        """One answer to each prompt, in their order; those of the same prompt are asked for at once."""
        return await asyncio.to_thread(self._draw, prompts, seed)

    def _draw(self, prompts: Sequence[tuple[int, ...]], seed: int) -> list[Drawn]:
        if self._published is None or self._published[0] != self.policy:
            self._published = (self.policy, self._learner.sampling_client())
        client, wanted = self._published[1], Counter(prompts)
        with asked("drawing answers"):
            asking = {
                prompt: client.sample(
                    self._sdk.ModelInput.from_ints(list(prompt)), count, self._params((seed + n) % (1 << 31))
                )
                for n, (prompt, count) in enumerate(wanted.items())
            }
            answers = {prompt: iter(future.result().sequences) for prompt, future in asking.items()}
        return [_drawn(next(answers[prompt])) for prompt in prompts]

    def _params(self, seed: int) -> Any:
        return self._sdk.SamplingParams(
            max_tokens=self.sampling.max_tokens, temperature=self.sampling.temperature, seed=seed,
            stop=sorted(self._chat.end),
        )  # fmt: skip


def _drawn(sequence: Any) -> Drawn:
    if sequence.logprobs is None:
        raise TinkerFailure("Tinker gave an answer without probabilities: nothing can be learned from it")
    return Drawn(tuple(sequence.tokens), tuple(sequence.logprobs), sequence.stop_reason == "length")
