"""Properties of losses: bounds, masks, corrections, and averages that do not depend on how a step is cut."""

from __future__ import annotations

import math

import pytest
import torch

from kb_ray.learn.loss import (
    Averaging,
    Clip,
    Totals,
    averaged,
    clipped_share,
    correction,
    k3,
    policy_loss,
    token_logprobs,
)

CLIP = Clip(low=0.2, high=0.28, dual=3.0)


def row(*values: float) -> torch.Tensor:
    return torch.tensor([list(values)], dtype=torch.float64)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 1.0, -1.1),
        (1.5, 1.0, -1.28),
        (0.5, 1.0, -0.5),
        (0.5, -1.0, 0.8),
        (1.5, -1.0, 1.5),
        (50.0, -1.0, 3.0),
        (50.0, -2.0, 6.0),
    ],
)
def test_the_policy_loss_of_a_token(ratio: float, advantage: float, loss: float) -> None:
    found = policy_loss(row(math.log(ratio)), row(0.0), row(advantage), CLIP)
    assert float(found) == pytest.approx(loss)


def test_without_the_second_bound_a_bad_token_can_cost_any_amount() -> None:
    assert float(policy_loss(row(math.log(50)), row(0.0), row(-1.0), CLIP._replace(dual=None))) == pytest.approx(50)


@pytest.mark.parametrize(("ratio", "advantage", "moves"), [(1.5, 1.0, False), (0.5, -1.0, False), (0.5, 1.0, True)])
def test_a_clipped_token_moves_nothing(ratio: float, advantage: float, moves: bool) -> None:
    new = row(math.log(ratio)).requires_grad_()
    policy_loss(new, row(0.0), row(advantage), CLIP).sum().backward()
    assert new.grad is not None
    assert bool(new.grad.abs().sum() > 0) is moves
    share = clipped_share(new.detach(), row(0.0), row(advantage), torch.ones(1, 1, dtype=torch.bool), CLIP)
    assert share == (0.0 if moves else 1.0)


def test_at_the_old_policy_the_gradient_is_the_policy_gradients() -> None:
    new = row(-1.0, -2.0).requires_grad_()
    policy_loss(new, new.detach(), row(1.5), CLIP).sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == [[-1.5, -1.5]]


def test_kl_is_never_negative_and_zero_only_where_both_agree() -> None:
    new, reference = row(-1.0, -1.0, -1.0), row(-1.0, -3.0, -0.2)
    found = k3(new, reference)[0].tolist()
    assert found[0] == 0.0
    assert found[1:] == pytest.approx([math.exp(-2) + 1, math.exp(0.8) - 1.8])
    assert min(found) >= 0


def test_corrections() -> None:
    learner, sampler = torch.tensor([[-1.0, -1.0], [-1.0, -9.0]]), torch.tensor([[-1.0, -3.0], [-1.0, -1.0]])
    mask = torch.ones(2, 2, dtype=torch.bool)
    assert correction(learner, sampler, mask, "none").weights.tolist() == [[1, 1], [1, 1]]
    cut = correction(learner, sampler, mask, "truncate", cap=2.0).weights
    assert cut[0].tolist() == [1.0, 2.0]
    assert float(cut[1, 1]) == pytest.approx(math.exp(-8))
    masked = correction(learner, sampler, mask, "mask")
    assert (masked.weights.tolist(), masked.left_out) == ([[0, 0], [0, 0]], 2)
    alike = correction(learner[:1], learner[:1] + 0.001, mask[:1], "mask")
    assert (alike.weights.tolist(), alike.left_out) == ([[1, 1]], 0)


def test_one_impossible_token_leaves_a_sequence_out_though_its_mean_is_fine() -> None:
    learner, sampler = torch.tensor([[-11.0, -1.0]]), torch.tensor([[-1.0, -11.0]])
    assert correction(learner, sampler, torch.ones(1, 2, dtype=torch.bool), "mask").left_out == 1
    # A token that nobody trains on does not count.
    assert (
        correction(learner, learner - torch.tensor([[0.0, -99.0]]), torch.tensor([[True, False]]), "mask").left_out == 0
    )


def test_a_correction_has_no_gradient() -> None:
    learner = torch.tensor([[-1.0]], requires_grad=True)
    assert not correction(
        learner, torch.tensor([[-2.0]]), torch.ones(1, 1, dtype=torch.bool), "truncate"
    ).weights.requires_grad


@pytest.mark.parametrize("how", ["constant", "token", "sequence"])
def test_how_a_step_is_cut_into_batches_changes_nothing(how: Averaging) -> None:
    draw = torch.Generator().manual_seed(0)
    loss = torch.randn(6, 5, generator=draw, dtype=torch.float64)
    mask = torch.rand(6, 5, generator=draw) < 0.6
    totals = Totals(sequences=6, tokens=int(mask.sum()), length=5)
    whole = averaged(loss, mask, how, totals)
    parts = sum(averaged(loss[i : i + 2], mask[i : i + 2], how, totals) for i in (0, 2, 4))
    assert float(parts) == pytest.approx(float(whole))


@pytest.mark.parametrize(("how", "value"), [("constant", 4 / 6), ("token", 1.0), ("sequence", 1.0)])
def test_averages_of_a_short_and_a_long_answer(how: Averaging, value: float) -> None:
    loss, mask = torch.ones(2, 3), torch.tensor([[True, False, False], [True, True, True]])
    assert float(averaged(loss, mask, how, Totals(2, 4, 3))) == pytest.approx(value)


def test_what_is_masked_does_not_count_even_where_it_is_not_a_number() -> None:
    loss, mask = torch.tensor([[1.0, float("nan")]]), torch.tensor([[True, False]])
    assert float(averaged(loss, mask, "token", Totals(1, 1, 2))) == 1.0


def test_log_probabilities_are_those_of_a_softmax() -> None:
    logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    tokens = torch.tensor([[0, 6, 3], [1, 1, 2]])
    expected = torch.log_softmax(logits.float(), -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    found = token_logprobs(logits, tokens)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
