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

# A lookup reads the groups of the rows it wants: at 5 to 15 kB a row, a group is half a megabyte.
ROW_GROUP_ROWS = 64
_TEXT = pa.string()
SCHEMA = pa.schema(
    {
        "example_id": _TEXT,
        "corpus": _TEXT,
        "language": _TEXT,
        "digest": _TEXT,
        "text": _TEXT,
        "speedup": pa.float64(),
        "verdict": _TEXT,
        "pytorch_code": _TEXT,
        "kernel_code": _TEXT,
        "entry_point": _TEXT,
        "init_convention": _TEXT,
    }
)
SMALL = ("example_id", "language", "digest", "speedup", "verdict")
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
    speedup: float | None = None
    """Reference time over kernel time, as the corpus or our verdict has it."""
    verdict: str | None = None
    """Status that our verifier gave; None where it was not asked."""
    pytorch_code: str
    kernel_code: str
    entry_point: str | None = None
    """Class or function of the program, where the corpus names it."""
    init_convention: str | None = None
    """`args` or `args_kwargs`, where the corpus has one."""


def encode(examples: Sequence[Example]) -> bytes:
    """A whole Parquet file (zstd) of the examples, in order."""
    sink = io.BytesIO()
    table = pa.Table.from_pylist([example.model_dump() for example in examples], schema=SCHEMA)
    pq.write_table(table, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS, write_statistics=["example_id"])
    return sink.getvalue()


def decode(rows: list[dict[str, Any]]) -> list[Example]:
    """The examples of rows as `Table.to_pylist()` gives them."""
    return [Example.model_validate(row) for row in rows]
