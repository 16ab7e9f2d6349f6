"""Sequences into batches of similar length, none of which takes more tokens than there is memory for. Numbers only."""

from __future__ import annotations

from collections.abc import Sequence


def bucketed(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Indices of sequences, batch by batch, shortest first: padded to its longest, no batch is over `most_tokens`.

    A sequence that is longer than that by itself is a batch of its own. Every index appears once.
    """
    batches, batch = list[list[int]](), list[int]()
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch and lengths[index] * (len(batch) + 1) > most_tokens:
            batches.append(batch)
            batch = []
        batch.append(index)
    return [*batches, batch] if batch else batches
