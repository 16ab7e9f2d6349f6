"""A LoRA adapter on a base model that is made to learn from samples, on one device, step by step.

One path for SFT, best-of-N and GRPO: samples are exact tokens with weights, the objective says what is minimised.
Knows no task, reward, turn or file of checkpoints; it gives and takes its state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kb_ray.errors import KbRayError
from kb_ray.learn import loss as losses
from kb_ray.learn.batching import bucketed
from kb_ray.learn.loss import Totals
from kb_ray.learn.network import load
from kb_ray.learn.objective import LearnerSettings, Objective
from kb_ray.learn.samples import Sample


class NotFinite(KbRayError):
    """The loss or a gradient is no number: the step was not taken."""


class StepReport(NamedTuple):
    """What one optimizer step was."""

    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    """Tokens that were trained on."""
    clipped: float
    """Share of tokens whose ratio was out of bounds."""
    kl: float
    """Mean k3 against the model without its adapter; 0 where it is not asked for."""
    mismatch: float
    """Mean |log p of the learner - log p of the sampler| over tokens that a sampler drew."""
    left_out: int
    """Sequences that the correction left out."""


class _Batch(NamedTuple):
    tokens: Tensor
    attention: Tensor
    mask: Tensor
    """Of the predicted tokens, [batch, longest - 1]."""
    advantage: Tensor
    sampler: Tensor
    """The sampler's log-probabilities, 0 where not trained; NaN where there are none."""


class Learner:
    """One model under training. Used by one thread."""

    def __init__(self, settings: LearnerSettings, device: str | None = None) -> None:
        """Loads the base model and a fresh adapter. ConfigError where that cannot be."""
        self.settings = settings
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
        settings = self.settings
        warm = min(1.0, (self.steps + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
        if settings.total_steps is None:
            return settings.learning_rate * warm
        done = min(1.0, self.steps / max(settings.total_steps, 1))
        return settings.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * done))

    def logprobs(self, samples: Sequence[Sample], temperature: float = 1.0) -> list[Tensor]:
        """Log-probabilities of the trained tokens of each sample under the weights as they are, on the CPU."""
        self.network.eval()
        found: dict[int, Tensor] = {}
        with torch.no_grad():
            for indices, batch in self._batches(samples):
                all_of_them = self._forward(batch, temperature)
                for row, index in enumerate(indices):
                    found[index] = all_of_them[row][batch.mask[row]].cpu()
        return [found[i] for i in range(len(samples))]

    def step(self, samples: Sequence[Sample], objective: Objective) -> StepReport:
        """One optimizer step over all of `samples`; NotFinite, and nothing changed, where the loss is no number."""
        return self.epoch(samples, objective, parts=1)[0]

    def epoch(self, samples: Sequence[Sample], objective: Objective, parts: int) -> list[StepReport]:
        """As many optimizer steps as `parts`, each over its share of `samples`, all against the weights before them."""
        old = self.logprobs(samples, objective.temperature) if objective.kind == "policy" and parts > 1 else None
        reports = []
        for part in range(parts):
            chosen = range(part, len(samples), parts)
            given = [samples[i] for i in chosen]
            reports.append(self._step(given, objective, None if old is None else [old[i] for i in chosen]))
        return reports

    def _step(self, samples: Sequence[Sample], objective: Objective, old: list[Tensor] | None) -> StepReport:
        totals = Totals(len(samples), sum(sum(sample.trained) for sample in samples), objective.length)
        rate = self.learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self._to_train(dropout=objective.kind == "likelihood")
        self.optimizer.zero_grad(set_to_none=True)
        told = _Told()
        for indices, batch in self._batches(samples):
            before = None if old is None else self._laid_out(batch, [old[i] for i in indices])
            value = self._loss(batch, objective, totals, before, told)
            value.backward()
            told.loss += float(value.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self.trained, self.settings.gradient_norm))
        if not (math.isfinite(told.loss) and math.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFinite(
                f"step {self.steps + 1}: the loss is {told.loss} and its gradient {norm}: the step was not taken; "
                "lower the learning rate"
            )
        self.optimizer.step()
        self.steps += 1
        return told.report(norm, rate, totals.tokens)

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
        found = torch.zeros_like(batch.sampler)
        for row, value in enumerate(values):
            found[row, batch.mask[row]] = value.to(self.device)
        return found

    def state(self) -> dict[str, Any]:
        """What `restore` needs to go on as if nothing had been: optimizer, steps and random states."""
        states = {"cpu": torch.get_rng_state()}
        if self.device == "cuda":
            states["cuda"] = torch.cuda.get_rng_state()
        return {"optimizer": self.optimizer.state_dict(), "steps": self.steps, "random": states}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state; the adapter's weights are the caller's to load."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = int(state["steps"])
        torch.set_rng_state(state["random"]["cpu"].cpu())
        if self.device == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu())


class _Told:
    """Sums over the batches of one step."""

    def __init__(self) -> None:
        self.loss = self.clipped = self.kl = self.mismatch = 0.0
        self.left_out = self.drawn = 0

    def report(self, norm: float, rate: float, tokens: int) -> StepReport:
        of = max(tokens, 1)
        return StepReport(
            self.loss, norm, rate, tokens, self.clipped / of, self.kl / of, self.mismatch / max(self.drawn, 1),
            self.left_out,
        )  # fmt: skip
