"""Portions: every sample once an epoch, and the same ones again after a restart."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from kb_ray.learn.samples import Sample
from kb_ray.learn.sft import SftRule, portions, total_steps


def samples(count: int) -> list[Sample]:
    return [Sample((0, i), (False, True)) for i in range(count)]


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 3), st.integers(0, 5))
def test_each_epoch_has_every_sample_once(count: int, batch_size: int, epochs: int, seed: int) -> None:
    rule = SftRule(epochs=epochs, batch_size=batch_size, seed=seed)
    told = list(portions(samples(count), rule))
    assert len(told) == total_steps(count, rule)
    assert told[-1].epoch == epochs
    per_epoch = len(told) // epochs
    for epoch in range(epochs):
        own = told[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(sample.tokens[1] for portion in own for sample in portion.samples) == list(range(count))
        assert all(len(portion.samples) <= batch_size for portion in own)


@given(st.integers(1, 30), st.integers(0, 20))
def test_a_restart_goes_on_with_the_same_samples(count: int, first: int) -> None:
    rule = SftRule(epochs=3, batch_size=4, seed=1)
    assert list(portions(samples(count), rule, first)) == list(islice(portions(samples(count), rule), first, None))


def test_epochs_differ_in_their_order() -> None:
    told = list(portions(samples(20), SftRule(epochs=2, batch_size=20)))
    assert told[0].samples != told[1].samples
