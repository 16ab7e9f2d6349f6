"""One row of an index: a PyTorch program and a kernel that does the same, with where it is from; and its Parquet form.

Knows no corpus, no embedding and no store.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.records import Record

Language = Literal["triton", "cuda"]

# A lookup reads the groups of the rows it wants: at 5 to 15 kB a row, a group is a hundred kilobytes.
ROW_GROUP_ROWS = 16
_TEXT = pa.string()
SCHEMA = pa.schema(
    {
        "example_id": _TEXT,
        "corpus": _TEXT,
        "language": _TEXT,
        "digest": _TEXT,
        "text": _TEXT,
        "operations": _TEXT,
        "speedup": pa.float64(),
        "correct": pa.bool_(),
        "verdict": _TEXT,
        "trusted": pa.bool_(),
        "pytorch_code": _TEXT,
        "kernel_code": _TEXT,
        "entry_point": _TEXT,
        "init_convention": _TEXT,
    }
)
SMALL = ("example_id", "language", "digest", "operations", "speedup", "correct", "verdict", "trusted")
"""Columns that a reader holds of every row."""


class Example(Record):
    """One pair."""

    example_id: str
    """Stable within its corpus: `kernelbook/1174`, `sakana/1/19_5`, `file/0012`, a task's id for our own traces."""
    corpus: str
    """`kernelbook`, `sakana`, `traces` or `file`."""
    language: Language
    digest: str
    """Of the program, `program.Core.digest`."""
    text: str
    """What is embedded of the program, `program.Core.text`."""
    operations: str = ""
    """What the program computes, `computed.operations`."""
    speedup: float | None = None
    """Reference time over kernel time: ours where our verifier was asked and timed it, else the corpus's."""
    correct: bool | None = None
    """Whether the kernel is correct, as our verdict or else the corpus says; None where neither says."""
    verdict: str | None = None
    """Status that our verifier gave; None where it was not asked."""
    trusted: bool | None = None
    """Whether our verdict's timing can be trusted; None where there is no verdict."""
    pytorch_code: str
    kernel_code: str
    entry_point: str | None = None
    """Class or function of the program, where the corpus names it."""
    init_convention: str | None = None
    """`args` or `args_kwargs`, where the corpus has one."""


def merit(
    language: str, correct: bool | None, verdict: str | None, trusted: bool | None, speedup: float | None
) -> tuple[float, ...]:
    """What speaks for a kernel among those of one program, the greater the better.

    Not known to be wrong; in the language that is asked for; verified with a trusted timing, verified, not verified;
    then the faster, where the figure is ours and trusted or the corpus's own.
    """
    verified = (2 if trusted else 1) if verdict is not None else 0
    counts = speedup is not None and (verdict is None or bool(trusted))
    return (correct is not False, language == "triton", verified, speedup if counts and speedup else 0.0)


def encode(examples: Sequence[Example]) -> bytes:
    """A whole Parquet file (zstd) of the examples, in order."""
    sink = io.BytesIO()
    table = pa.Table.from_pylist([example.model_dump() for example in examples], schema=SCHEMA)
    pq.write_table(table, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS, write_statistics=["example_id"])
    return sink.getvalue()


def decode(rows: list[dict[str, Any]]) -> list[Example]:
    """The examples of rows as `Table.to_pylist()` gives them."""
    return [Example.model_validate(row) for row in rows]
