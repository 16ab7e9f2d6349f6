"""What an episode's prompt was given as examples, as its trace keeps it: ids and numbers, no code.

A part of the records; the code of the examples stands in the episode's messages.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RetrievedExample(BaseModel):
    """One example that was shown."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    example_id: str
    """Of the corpus: `kernelbook/1174`, `sakana/1/19_5`, `file/0012`, or the task's id for our own traces."""
    language: str
    """`triton` or `cuda`."""
    score: float
    """Cosine of the embeddings, or BM25's score of a lexical index."""
    overlap: float
    """Share, 0 to 1, of runs of tokens that its program and the task's have in common."""


class Retrieved(BaseModel):
    """How the examples of one episode came about."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    index: str
    """Content hash of the index."""
    wanted: int
    """Examples that were asked for (--raicl-k)."""
    examples: tuple[RetrievedExample, ...]
    """In the order of the prompt."""
    leak_overlap: float
    """Overlap from which a program counts as the task itself (--raicl-overlap)."""
    leak_similarity: float | None = None
    """Cosine from which it does; None where the index has no vectors, and in older traces."""
    leaks: int
    """Rows that were dropped for it."""
    note: str | None = None
    """Why there are fewer examples than wanted."""
