"""What became of each corpus's rows while they are put together into parts of equal size.

Takes out pairs that were read before. Knows no store and no embedding.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kb_ray.retrieve.corpus import Found
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.layout import Corpus
from kb_ray.retrieve.verifying import Outcome

_DUPLICATE = "read before"
_UNVERIFIED = "not called correct by our verifier"
_UNASKED = "such as our verifier cannot be asked about"
_UNJUDGED = "not judged by our verifier, twice for reasons of its own"

Batch = list[tuple[str, Example]]
"""(corpus as it was asked for, example) of what goes into one part."""


@dataclass
class Count:
    """What became of a corpus's rows so far."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    digest: Any = field(default_factory=hashlib.sha256)

    def refuse(self, outcome: Outcome | None) -> None:
        """One that was kept did not pass the verifier, or got no verdict; None where the verdict is lost."""
        self.kept -= 1
        if outcome is not None and not outcome.asked:
            self.dropped[_UNASKED] += 1
        else:
            self.dropped[_UNJUDGED if outcome is not None and outcome.unjudged else _UNVERIFIED] += 1

    def corpus(self, spec: str) -> Corpus:
        """The record of it."""
        return Corpus(
            spec=spec, read=self.read, kept=self.kept, dropped=dict(self.dropped), sha256=self.digest.hexdigest()
        )


def batches(corpora: Mapping[str, Iterable[Found]], counts: Mapping[str, Count], size: int) -> Iterator[Batch]:
    """The examples of all corpora in order, `size` at a time; counts every row."""
    batch, seen, ids = Batch(), set[bytes](), Counter[str]()
    for spec, rows in corpora.items():
        count = counts[spec]
        for found in rows:
            count.read += 1
            if isinstance(found, str):
                count.dropped[found] += 1
                continue
            mark = _mark(found)
            if mark in seen:
                count.dropped[_DUPLICATE] += 1
                continue
            seen.add(mark)
            count.kept += 1
            ids[found.example_id] += 1
            if (number := ids[found.example_id]) > 1:
                # Two files of one name, or two stores with one task.
                found = found.model_copy(update={"example_id": f"{found.example_id}#{number}"})
            count.digest.update(found.example_id.encode("utf-8", "surrogatepass") + mark)
            batch.append((spec, found))
            if len(batch) == size:
                yield batch
                batch = []
    if batch:
        yield batch


def told(corpus: Corpus) -> str:
    """`file:x.jsonl: 3 rows read, 1 kept (2 kernel is missing)`."""
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(corpus.dropped.items()))
    return f"{corpus.spec}: {corpus.read} rows read, {corpus.kept} kept" + (f" ({dropped})" if dropped else "")


def _mark(example: Example) -> bytes:
    text = f"{example.pytorch_code}\0{example.kernel_code}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
