"""SFT: samples in a seeded order, some to a step, for some epochs. Best-of-N learns its kept answers the same way.

A step's samples depend on seed and step alone, so that a run goes on where it was. Knows no file and no text.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kb_ray.learn.samples import Sample
from kb_ray.records import Record


class SftRule(Record):
    """How samples are gone through. Defaults: the second document's."""

    epochs: int = 1
    batch_size: int = 2
    """Samples a step."""
    seed: int = 0


class Portion(NamedTuple):
    """What one step learns from."""

    step: int
    epoch: float
    """Epochs that are over once it is taken."""
    samples: list[Sample]


def total_steps(samples: int, rule: SftRule) -> int:
    """Steps of the whole run."""
    return rule.epochs * math.ceil(samples / rule.batch_size)


def portions(samples: Sequence[Sample], rule: SftRule, first: int = 0) -> Iterator[Portion]:
    """Every step's samples from step `first` on. Each epoch has every sample once, in an order of its own."""
    per_epoch = math.ceil(len(samples) / rule.batch_size)
    for step in range(first, rule.epochs * per_epoch):
        epoch, at = divmod(step, per_epoch)
        order = list(range(len(samples)))
        random.Random(f"{rule.seed}/{epoch}").shuffle(order)
        chosen = order[at * rule.batch_size : (at + 1) * rule.batch_size]
        yield Portion(step, (step + 1) / per_epoch, [samples[i] for i in chosen])
