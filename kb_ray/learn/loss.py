"""Losses over tokens: clipped policy gradient, its correction for another sampler, KL, and how tokens are averaged.

Tensors in, tensors out: per token [batch, tokens], with a mask of the tokens that a model wrote. Knows no model, no
optimizer and no reward. Averages are over a whole optimizer step: how it is cut into batches changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kb_ray.learn.objective import Averaging, Clip, Correction

_MOST = 20.0
"""Bound of differences of log-probabilities before exp."""


class Totals(NamedTuple):
    """What a whole optimizer step has: sequences, tokens that are trained on, and a constant length."""

    sequences: int
    tokens: int
    length: int
    """Tokens an answer may have at most; the denominator of `constant`."""


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """log p of each of `tokens` [batch, n] under `logits` [batch, n, vocabulary], in float32 at least."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    chosen = torch.gather(logits, -1, tokens.unsqueeze(-1)).squeeze(-1).to(precise)
    return chosen - torch.logsumexp(logits.to(precise), dim=-1)


def policy_loss(new: Tensor, old: Tensor, advantage: Tensor, clip: Clip) -> Tensor:
    """Loss of each token: -min(r A, clip(r, 1 - low, 1 + high) A), r the ratio of probabilities.

    `new`, `old`: log-probabilities [batch, tokens], `old` without gradient; `advantage`: [batch, 1] or [batch, tokens].
    PPO (Schulman and others, 2017).
    """
    ratio = torch.exp(torch.clamp(new - old, -_MOST, _MOST))
    clipped = torch.clamp(ratio, 1 - clip.low, 1 + clip.high)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    if clip.dual is None:
        return loss
    return torch.where(advantage < 0, torch.minimum(loss, -clip.dual * advantage), loss)


def clipped_share(new: Tensor, old: Tensor, advantage: Tensor, mask: Tensor, clip: Clip) -> float:
    """Share of masked tokens whose ratio is outside of the bounds on the side where that stops their gradient."""
    ratio = torch.exp(torch.clamp(new - old, -_MOST, _MOST))
    stopped = ((ratio > 1 + clip.high) & (advantage > 0)) | ((ratio < 1 - clip.low) & (advantage < 0))
    return float((stopped & mask).sum() / mask.sum().clamp(min=1))


def k3(new: Tensor, reference: Tensor) -> Tensor:
    """An estimate of KL(new | reference) for each token: exp(d) - d - 1 with d = reference - new; never below 0.

    J. Schulman, Approximating KL Divergence, 2020.
    """
    difference = torch.clamp(reference - new, -_MOST, _MOST)
    return torch.exp(difference) - difference - 1


class Corrected(NamedTuple):
    """Weights for tokens that were drawn by another program than the learner's, and what is left out."""

    weights: Tensor
    """[batch, tokens], without gradient; 0 where a sequence is left out."""
    left_out: int
    """Sequences."""


def correction(
    learner: Tensor, sampler: Tensor, mask: Tensor, how: Correction, cap: float = 2.0, veto: float = 1e-4,
    band: tuple[float, float] = (0.99, 1.01),
) -> Corrected:  # fmt: skip
    """What makes up for the sampler's log-probabilities not being the learner's own, of the same weights.

    `truncate`: min(p_learner / p_sampler, `cap`) for each token (truncated importance sampling). `mask`: weight 1, and
    0 for a sequence whose geometric mean of that ratio is outside `band`, or any token of which is under `veto`
    (Dr. Kernel). `none`: 1.
    """
    learner = learner.detach()
    ratio = torch.exp(torch.clamp(learner - sampler, -_MOST, _MOST))
    if how == "none":
        return Corrected(torch.ones_like(ratio), 0)
    if how == "truncate":
        return Corrected(torch.clamp(ratio, max=cap), 0)
    length = mask.sum(-1).clamp(min=1)
    mean = torch.exp(((learner - sampler) * mask).sum(-1) / length)
    fine = (mean >= band[0]) & (mean <= band[1]) & ~((ratio < veto) & mask).any(-1)
    return Corrected(fine.to(ratio.dtype).unsqueeze(-1).expand_as(ratio), int((~fine).sum()))


def averaged(loss: Tensor, mask: Tensor, how: Averaging, totals: Totals) -> Tensor:
    """The part of one batch in the loss of an optimizer step: parts add up to it.

    `constant`: sum / (sequences * length), which favours neither short nor long answers (Dr. GRPO). `token`: sum / all
    tokens of the step (DAPO). `sequence`: mean over sequences of their own means (GRPO).
    """
    kept = torch.where(mask, loss, torch.zeros_like(loss))
    if how == "constant":
        return kept.sum() / (max(totals.sequences, 1) * max(totals.length, 1))
    if how == "token":
        return kept.sum() / max(totals.tokens, 1)
    return (kept.sum(-1) / mask.sum(-1).clamp(min=1)).sum() / max(totals.sequences, 1)
