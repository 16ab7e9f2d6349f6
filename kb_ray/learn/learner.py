"""A LoRA adapter on a base model that is made to learn from samples, on one device, step by step.

One path for SFT, best-of-N and GRPO: samples are exact tokens with weights, the objective says what is minimised.
Knows no task, reward, turn or file of checkpoints; it gives and takes its state.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kb_ray.errors import ConfigError
from kb_ray.learn import loss as losses
from kb_ray.learn.batching import bucketed
from kb_ray.learn.generating import Drawing, draw
from kb_ray.learn.loss import Totals
from kb_ray.learn.memory import answering, fitting, learning
from kb_ray.learn.network import adapter_files, base_weights, load, load_adapter
from kb_ray.learn.objective import LearnerSettings, Objective
from kb_ray.learn.peers import Alone
from kb_ray.learn.samples import Drawn, Sample
from kb_ray.learn.stepping import Elsewhere, NotFinite, OutOfMemory, StepReport, learning_rate, under_another_output


class _Batch(NamedTuple):
    tokens: Tensor
    attention: Tensor
    mask: Tensor
    """Of the predicted tokens, [batch, longest - 1]."""
    advantage: Tensor
    sampler: Tensor
    """The sampler's log-probabilities, 0 where not trained; NaN where there are none."""


class Learner:
    """One model under training, a `stepping.Trainee`. Used by one thread."""

    def __init__(self, settings: LearnerSettings, device: str | None = None, peers: Alone | None = None) -> None:
        """Loads the base model and a fresh adapter. ConfigError where that cannot be.

        `peers`: other processes with the same model, which are given the same steps to take together.
        """
        self.settings = settings
        self.peers = peers or Alone()
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.network, self.tokenizer = load(settings, self.device)
        self.trained = [weights for weights in self.network.parameters() if weights.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=settings.learning_rate, weight_decay=settings.weight_decay, betas=(0.9, 0.95)
        )
        self.steps = 0
        self._pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else 0

    def learning_rate(self) -> float:
        """Of the next step."""
        return learning_rate(self.settings, self.steps)

    def logprobs(self, samples: Sequence[Sample], temperature: float = 1.0) -> list[Tensor]:
        """Log-probabilities of the trained tokens of each sample under the weights as they are, on the CPU."""
        self.network.eval()
        found: dict[int, Tensor] = {}
        with torch.no_grad():
            for indices, batch in self._batches(samples):
                with self._memory(batch):
                    all_of_them = self._forward(batch, temperature)
                for row, index in enumerate(indices):
                    found[index] = all_of_them[row][batch.mask[row]].cpu()
        return [found[i] for i in range(len(samples))]

    def step(self, samples: Sequence[Sample], objective: Objective) -> StepReport:
        """One optimizer step over all of `samples`; NotFinite, and nothing changed, where the loss is no number."""
        return self.epoch(samples, objective, parts=1)[0]

    def epoch(self, samples: Sequence[Sample], objective: Objective, parts: int) -> list[StepReport]:
        """As many optimizer steps as `parts`, each over its share of `samples`, all against the weights before them."""
        given = [[samples[i] for i in range(part, len(samples), parts)] for part in range(parts)]
        if objective.kind != "policy" or parts == 1:
            return [self._step(own, objective, None) for own in given]
        old = self._before(given, objective.temperature)
        return [self._step(own, objective, before) for own, before in zip(given, old, strict=True)]

    def _before(self, given: Sequence[Sequence[Sample]], temperature: float) -> list[list[Tensor]]:
        """Log-probabilities of this process's share of each part. OutOfMemory in all processes, or in none."""
        shares = [[own[i] for i in self.peers.share(len(own))] for own in given]
        old, failure = list[list[Tensor]](), None
        try:
            old = [self.logprobs(share, temperature) for share in shares]
        except OutOfMemory as error:
            failure = error
        failed = torch.tensor([float(failure is not None)], device=self.device)
        self.peers.add([failed])
        if float(failed):
            raise failure or self._elsewhere()
        return old

    def _step(self, samples: Sequence[Sample], objective: Objective, old: list[Tensor] | None) -> StepReport:
        """`old`: log-probabilities of this process's share of the samples before the epoch."""
        totals = Totals(len(samples), sum(sum(sample.trained) for sample in samples), objective.length)
        rate = self.learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self._to_train(dropout=objective.kind == "likelihood")
        self.optimizer.zero_grad(set_to_none=True)
        told, failure = _Told(), None
        try:
            for indices, batch in self._batches([samples[i] for i in self.peers.share(len(samples))]):
                before = None if old is None else self._laid_out(batch, [old[i] for i in indices])
                with self._memory(batch):
                    value = self._loss(batch, objective, totals, before, told)
                    value.backward()
                told.loss += float(value.detach())
        except OutOfMemory as error:
            failure = error
        # Also after a failure: the others wait for this process's part.
        self._add_up(told, failed=failure is not None)
        if failure is not None or told.failed:
            self.optimizer.zero_grad(set_to_none=True)
            raise failure or self._elsewhere()
        norm = float(torch.nn.utils.clip_grad_norm_(self.trained, self.settings.gradient_norm))
        if not (math.isfinite(told.loss) and math.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFinite(
                f"step {self.steps + 1}: the loss is {told.loss} and its gradient {norm}: the step was not taken; "
                f"lower --learning-rate {under_another_output(self.steps)}"
            )
        self.optimizer.step()
        self.steps += 1
        return told.report(norm, rate, totals.tokens)

    def _add_up(self, told: _Told, failed: bool) -> None:
        """Gradients and what is told of the step, of all processes."""
        for weights in self.trained:
            weights.grad = torch.zeros_like(weights) if weights.grad is None else weights.grad
        told.failed = int(failed)
        sums = told.sums(self.device)
        self.peers.add([*(weights.grad for weights in self.trained if weights.grad is not None), sums])
        told.take(sums)

    def _elsewhere(self) -> Elsewhere:
        return Elsewhere(f"step {self.steps + 1}: another process ran out of memory")

    @contextmanager
    def _memory(self, batch: _Batch) -> Iterator[None]:
        """OutOfMemory, with what to change, where the device runs out of it."""
        try:
            with learning(self.settings, self.steps, *batch.tokens.shape):
                yield
        except OutOfMemory:
            self.optimizer.zero_grad(set_to_none=True)
            raise

    def _to_train(self, dropout: bool) -> None:
        """Training mode; without dropout where probabilities are compared, which it would blur."""
        self.network.train()
        for module in self.network.modules():
            if isinstance(module, torch.nn.Dropout):
                module.train(dropout)

    def _loss(self, batch: _Batch, objective: Objective, totals: Totals, old: Tensor | None, told: _Told) -> Tensor:
        new = self._forward(batch, objective.temperature)
        if objective.kind == "likelihood":
            return losses.averaged(-batch.advantage * new, batch.mask, objective.averaging, totals)
        before = new.detach() if old is None else old
        each = losses.policy_loss(new, before, batch.advantage, objective.clip)
        drawn = batch.mask & ~torch.isnan(batch.sampler)
        if bool(drawn.any()):
            sampler = torch.where(drawn, batch.sampler, before)
            corrected = losses.correction(before, sampler, batch.mask, objective.correction)
            each = each * corrected.weights
            told.left_out += corrected.left_out
            told.mismatch += float(((before - sampler).abs() * drawn).sum())
            told.drawn += int(drawn.sum())
        told.clipped += losses.clipped_share(new.detach(), before, batch.advantage, batch.mask, objective.clip) * int(
            batch.mask.sum()
        )
        if objective.kl_beta > 0:
            with torch.no_grad(), self.network.disable_adapter():
                reference = self._forward(batch, objective.temperature)
            away = losses.k3(new, reference)
            told.kl += float((away.detach() * batch.mask).sum())
            each = each + objective.kl_beta * away
        return losses.averaged(each, batch.mask, objective.averaging, totals)

    def _forward(self, batch: _Batch, temperature: float) -> Tensor:
        """Log-probabilities [batch, longest - 1] of every token after the first."""
        logits = self.network(input_ids=batch.tokens, attention_mask=batch.attention).logits[:, :-1]
        if temperature != 1.0:
            logits = logits / temperature
        return losses.token_logprobs(logits, batch.tokens[:, 1:])

    def _batches(self, samples: Sequence[Sample]) -> Iterator[tuple[list[int], _Batch]]:
        for indices in bucketed([len(sample.tokens) for sample in samples], self.settings.batch_tokens):
            yield indices, self._batch([samples[i] for i in indices])

    def _batch(self, samples: Sequence[Sample]) -> _Batch:
        longest = max(len(sample.tokens) for sample in samples)
        tokens = torch.full((len(samples), longest), self._pad)
        attention, trained = torch.zeros_like(tokens), torch.zeros(tokens.shape, dtype=torch.bool)
        for row, sample in enumerate(samples):
            tokens[row, : len(sample.tokens)] = torch.tensor(sample.tokens)
            attention[row, : len(sample.tokens)] = 1
            trained[row, : len(sample.tokens)] = torch.tensor(sample.trained)
        advantage = torch.tensor([[sample.advantage] for sample in samples], dtype=torch.float32)
        mask = trained[:, 1:]
        sampler = torch.zeros(mask.shape)
        for row, sample in enumerate(samples):
            given = sample.logprobs
            sampler[row, mask[row]] = math.nan if given is None else torch.tensor(given, dtype=torch.float32)
        return _Batch(*(part.to(self.device) for part in (tokens, attention, mask, advantage, sampler)))

    def _laid_out(self, batch: _Batch, values: Sequence[Tensor]) -> Tensor:
        """Values of the trained tokens where those stand in the batch; 0 elsewhere."""
        found = torch.zeros(batch.sampler.shape, dtype=values[0].dtype, device=self.device)
        for row, value in enumerate(values):
            found[row, batch.mask[row]] = value.to(self.device)
        return found

    def state(self) -> dict[str, Any]:
        """What `restore` needs to go on as if nothing had been: optimizer, steps and random states."""
        states = {"cpu": torch.get_rng_state()}
        if self.device == "cuda":
            states["cuda"] = torch.cuda.get_rng_state()
        return {"optimizer": self.optimizer.state_dict(), "steps": self.steps, "random": states}

    def restore(self, state: dict[str, Any], weights: bytes | None = None) -> None:
        """Take up a state, and the adapter's weights where they are given."""
        with fitting(self.settings, self.device):
            if weights is not None:
                load_adapter(self.network, weights)
            self.optimizer.load_state_dict(state["optimizer"])
        self.steps = int(state["steps"])
        torch.set_rng_state(state["random"]["cpu"].cpu())
        if self.device == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu())

    def begin_with(self, weights: bytes | None, state: dict[str, Any] | None = None) -> None:
        """Begin with an adapter's weights."""
        if weights is None:
            raise ConfigError("that run holds no adapter's weights: it was trained elsewhere")
        with fitting(self.settings, self.device):
            load_adapter(self.network, weights)

    def base_weights(self) -> dict[str, str]:
        """Fingerprints of the base model's weights, by part."""
        return base_weights(self.network)

    @property
    def window(self) -> int | None:
        """Tokens that fit into the model's window, where its settings say so."""
        found: int | None = getattr(self.network.config, "max_position_embeddings", None)
        return found

    def draw(
        self, prompts: Sequence[tuple[int, ...]], drawing: Drawing, ends: Collection[int], seed: int
    ) -> list[Drawn]:
        """One answer to each prompt, in their order."""
        longest = [len(prompt) + drawing.max_tokens for prompt in prompts]
        with answering(longest, drawing.batch_tokens, self.steps):
            return draw(self.network, prompts, drawing, ends, seed)

    def adapter(self) -> dict[str, bytes]:
        """The adapter's files as PEFT writes them."""
        return adapter_files(self.network)

    def close(self) -> None:
        """Nothing is held elsewhere."""


class _Told:
    """Sums over the batches of one step."""

    def __init__(self) -> None:
        self.loss = self.clipped = self.kl = self.mismatch = 0.0
        self.left_out = self.drawn = self.failed = 0

    def sums(self, device: str) -> Tensor:
        """All of them, to be added to those of other processes."""
        found = [self.loss, self.clipped, self.kl, self.mismatch, self.left_out, self.drawn, self.failed]
        return torch.tensor(found, dtype=torch.float64, device=device)

    def take(self, sums: Tensor) -> None:
        """The sums of all processes."""
        self.loss, self.clipped, self.kl, self.mismatch, *counts = sums.tolist()
        self.left_out, self.drawn, self.failed = map(int, counts)

    def report(self, norm: float, rate: float, tokens: int) -> StepReport:
        of = max(tokens, 1)
        return StepReport(
            self.loss, norm, rate, tokens, self.clipped / of, self.kl / of, self.mismatch / max(self.drawn, 1),
            self.left_out,
        )  # fmt: skip
