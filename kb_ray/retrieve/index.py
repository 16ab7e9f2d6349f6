"""An index, opened: checked against its metadata, its vectors mapped, its examples read as they are asked for.

Refuses in one line what is unfinished, truncated, changed or not an index. Does not embed and does not choose.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.errors import ConfigError, StoreError
from kb_ray.retrieve.example import ROW_GROUP_ROWS, SCHEMA, SMALL, Example, Language, decode, merit
from kb_ray.retrieve.layout import INFO_KEY, IndexInfo, Part, read_info
from kb_ray.retrieve.local_copy import damaged, folder_of, told_of_index
from kb_ray.traces.store import LocalStore, Store, open_store

_GROUPS_HELD = 256
_EXAMPLES_HELD = 4096
_LARGE = [name for name in SCHEMA.names if name not in SMALL]


class Index:
    """All of an index that is needed to look things up. ConfigError where it cannot be used.

    `uri`: folder or s3://bucket/prefix; what lies on S3 is copied once to ~/.cache/kb_ray (or XDG_CACHE_HOME).
    """

    def __init__(self, uri: str) -> None:
        with told_of_index():
            store = open_store(uri)
            self.uri = store.uri
            self.info = _info(store)
            self._folder = folder_of(store, self.info)
        self._starts: list[int] = np.cumsum([0, *(part.rows for part in self.info.parts)]).tolist()
        self._tables = [self._parquet(part) for part in self.info.parts]
        small = self._small = self._small_columns()
        self.example_ids: list[str] = small["example_id"]
        self.digests: list[str] = small["digest"]
        self.operations: list[str] = small["operations"]
        """What the program of each row computes, `computed.operations`."""
        fields = (small[name] for name in ("language", "correct", "verdict", "trusted", "speedup"))
        self.merits = [merit(*values) for values in zip(*fields, strict=True)]
        """What speaks for an example among those of one program."""
        self.is_cuda = np.array([language == "cuda" for language in small["language"]], dtype=bool)
        self._check_ann(set(small["language"]))
        self.vectors = [self._mapped(part) for part in self.info.parts]
        self._group = lru_cache(maxsize=_GROUPS_HELD)(self._read_group)
        self._held = lru_cache(maxsize=_EXAMPLES_HELD)(self._decoded)

    def __len__(self) -> int:
        return self.info.count

    @property
    def ann_paths(self) -> dict[Language, Path]:
        """Where the FAISS index of each language lies, if there are any."""
        files = self.info.ann.files if self.info.ann else {}
        return {language: self._folder / file.key for language, file in files.items()}

    def example(self, row: int) -> Example:
        """The example in row `row`, 0-based over all parts. StoreError where it can no longer be read."""
        return self._held(row)

    def texts(self) -> list[str]:
        """What is embedded of every row's program."""
        columns = (table.read(columns=["text"])["text"].to_pylist() for table in self._tables)
        return [text for column in columns for text in column]

    def _check_ann(self, languages: set[str]) -> None:
        if self.info.ann is not None and set(self.info.ann.files) != languages:
            named, there = (" and ".join(sorted(found)) or "none" for found in (self.info.ann.files, languages))
            raise ConfigError(damaged(self.uri, INFO_KEY, f"names FAISS files of {named}, the examples being {there}"))

    def _decoded(self, row: int) -> Example:
        part = bisect_right(self._starts, row) - 1
        offset = row - self._starts[part]
        group: pa.Table = self._group(part, offset // ROW_GROUP_ROWS)
        large = group.slice(offset % ROW_GROUP_ROWS, 1).to_pylist()[0]
        return decode([large | {name: column[row] for name, column in self._small.items()}])[0]

    def _read_group(self, part: int, group: int) -> pa.Table:
        try:
            # Threads would cost more than they save on so little.
            return self._tables[part].read_row_group(group, columns=_LARGE, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"index {self.uri}: {self.info.parts[part].examples.key} can no longer be read") from error

    def _small_columns(self) -> dict[str, list[Any]]:
        """Of every row the columns that are held."""
        found: dict[str, list[Any]] = {name: [] for name in SMALL}
        for table, part in zip(self._tables, self.info.parts, strict=True):
            rows = table.metadata.num_rows
            if rows != part.rows:
                raise ConfigError(damaged(self.uri, part.examples.key, f"holds {rows} rows, not {part.rows}"))
            columns = table.read(columns=list(SMALL))
            for name in SMALL:
                found[name] += columns[name].to_pylist()
        return found

    def _parquet(self, part: Part) -> pq.ParquetFile:
        try:
            found = pq.ParquetFile(self._folder / part.examples.key)
        except (pa.ArrowException, OSError) as error:
            raise ConfigError(damaged(self.uri, part.examples.key, "is no Parquet file")) from error
        if not found.schema_arrow.equals(SCHEMA):
            raise ConfigError(damaged(self.uri, part.examples.key, "has other columns than examples have"))
        return found

    def _mapped(self, part: Part) -> Any:
        dimension = self.info.embedding.dimension or 0
        if part.vectors is None:
            return np.zeros((part.rows, 0), dtype=np.float32)
        try:
            mapped = np.load(self._folder / part.vectors.key, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ConfigError(damaged(self.uri, part.vectors.key, "holds no vectors")) from error
        if mapped.shape != (part.rows, dimension) or mapped.dtype != np.float32:
            what = f"holds {mapped.dtype} {list(mapped.shape)}, not float32 {[part.rows, dimension]}"
            raise ConfigError(damaged(self.uri, part.vectors.key, what))
        return mapped


def index_identity(uri: str) -> str:
    """16 hex digits of an index's content, from its metadata alone. ConfigError where there is none."""
    with told_of_index():
        return _info(open_store(uri)).identity


def _info(store: Store) -> IndexInfo:
    if isinstance(store, LocalStore) and Path(store.uri).is_file():
        raise ConfigError(f"index {store.uri}: that is a file, name the folder of an index")
    info = read_info(store)
    if info is None:
        raise ConfigError(
            f"index {store.uri}: no {INFO_KEY} there: it is no index, or its build has not finished; "
            "build it with python -m kb_ray.index"
        )
    return info
