"""Rows of a Parquet file by number, a batch at a time: no more of a file is in memory than that.

Knows the format and how a file of it fails; not what rows mean.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from kb_ray.errors import ConfigError, TaskError

_BATCH = 256
_BUFFER_BYTES = 1 << 20


class ParquetRows:
    """The rows of one file, with the columns that are wanted. Cheap when read on in order, at any place possible.

    ConfigError, here or at a row, where the file is no Parquet or is damaged; OSError where it cannot be opened;
    TaskError at a row whose text is no UTF-8.
    """

    def __init__(self, file: Path, wanted: Collection[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path, self._failures = file, (pa.ArrowException, OSError)
        with file.open("rb"):  # what cannot be opened is told by its own name
            pass
        try:
            # Else whole columns of a row group are read at once, and many files have a single group.
            self._file = pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except self._failures as error:
            raise self._unreadable(error) from error
        names = list(self._file.schema_arrow.names)
        self.names = frozenset(names)
        self._columns = [name for name in names if name in wanted]
        meta = self._file.metadata
        sizes = [int(meta.row_group(group).num_rows) for group in range(meta.num_row_groups)]
        self._starts = list(accumulate(sizes, initial=0))
        self._batches: Iterator[Any] | None = None
        self._first, self._held = 0, list[dict[str, Any] | None]()

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not self._first <= index < self._first + len(self._held):
            try:
                self._hold(index)
            except self._failures as error:
                raise self._unreadable(error) from error
        row = self._held[index - self._first]
        if row is None:
            raise TaskError("a column of it is no UTF-8 text")
        return row

    def _hold(self, index: int) -> None:
        """Read on, or again from the row group's start, to the batch that has this row."""
        group = bisect_right(self._starts, index) - 1
        first = self._first + len(self._held)
        if self._batches is None or not self._starts[group] <= first <= index:
            groups = range(group, len(self._starts) - 1)
            self._batches = self._file.iter_batches(_BATCH, row_groups=groups, columns=self._columns)
            first = self._starts[group]
        for batch in self._batches:
            if index < first + batch.num_rows:
                self._first, self._held = first, _rows(batch)
                return
            first += batch.num_rows
        raise OSError("it ends before its last row")

    def _unreadable(self, error: Exception) -> ConfigError:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return ConfigError(f"{self._path}: is no readable Parquet file: {line}")


def _rows(batch: Any) -> list[dict[str, Any] | None]:
    """The rows of a batch; None for one whose text is none, which must not cost the others."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return [None]
        half = batch.num_rows // 2
        return _rows(batch.slice(0, half)) + _rows(batch.slice(half))
