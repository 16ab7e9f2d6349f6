"""An index, opened: checked against its metadata, its vectors mapped, its examples read as they are asked for.

Refuses in one line what is unfinished, truncated, changed or not an index. Does not embed and does not choose.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kb_ray.errors import ConfigError, StoreError
from kb_ray.retrieve.example import ROW_GROUP_ROWS, SMALL, Example, decode
from kb_ray.retrieve.layout import INFO_KEY, File, IndexInfo, Part, read_info
from kb_ray.traces.store import LocalStore, Store, open_store

_GROUPS_HELD = 64
_CHUNK = 4 * 1024**2


class Index:
    """All of an index that is needed to look things up. ConfigError where it cannot be used.

    `uri`: folder or s3://bucket/prefix; what lies on S3 is copied once to ~/.cache/kb_ray (or XDG_CACHE_HOME).
    """

    def __init__(self, uri: str) -> None:
        store = open_store(uri)
        self.uri = store.uri
        self.info = _info(store)
        self._folder = _folder(store, self.info)
        for file in self._files():
            _check(self._folder, file, self.uri)
        self._starts: list[int] = np.cumsum([0, *(part.rows for part in self.info.parts)]).tolist()
        self._tables = [self._parquet(part) for part in self.info.parts]
        small = pa.concat_tables([table.read(columns=list(SMALL)) for table in self._tables])
        self._check_count(small)
        self.example_ids: list[str] = small["example_id"].to_pylist()
        self.digests: list[str] = small["digest"].to_pylist()
        self.merits = [
            (verdict == "ok", speedup or 0.0)
            for verdict, speedup in zip(small["verdict"].to_pylist(), small["speedup"].to_pylist(), strict=True)
        ]
        """What speaks for an example among those of one program: verified first, then the faster."""
        self.is_cuda = np.array([language == "cuda" for language in small["language"].to_pylist()], dtype=bool)
        self.vectors = [self._mapped(part) for part in self.info.parts]
        self._group = lru_cache(maxsize=_GROUPS_HELD)(self._read_group)

    def __len__(self) -> int:
        return self.info.count

    @property
    def ann_path(self) -> Path | None:
        """Where the FAISS index lies, if there is one."""
        return self._folder / self.info.ann.file.key if self.info.ann else None

    def example(self, row: int) -> Example:
        """The example in row `row`, 0-based over all parts."""
        part = bisect_right(self._starts, row) - 1
        offset = row - self._starts[part]
        held: list[Example] = self._group(part, offset // ROW_GROUP_ROWS)
        return held[offset % ROW_GROUP_ROWS]

    def texts(self) -> list[str]:
        """What is embedded of every row's program."""
        columns = (table.read(columns=["text"])["text"].to_pylist() for table in self._tables)
        return [text for column in columns for text in column]

    def _read_group(self, part: int, group: int) -> list[Example]:
        try:
            return decode(self._tables[part].read_row_group(group).to_pylist())
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"index {self.uri}: {self.info.parts[part].examples.key} can no longer be read") from error

    def _files(self) -> list[File]:
        found = [file for part in self.info.parts for file in (part.examples, part.vectors) if file]
        return [*found, self.info.ann.file] if self.info.ann else found

    def _parquet(self, part: Part) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._folder / part.examples.key)
        except (pa.ArrowException, OSError) as error:
            raise ConfigError(_damaged(self.uri, part.examples.key, "is no Parquet file")) from error

    def _check_count(self, small: pa.Table) -> None:
        if small.num_rows != self.info.count:
            raise ConfigError(_damaged(self.uri, INFO_KEY, f"says {self.info.count} rows, there are {small.num_rows}"))

    def _mapped(self, part: Part) -> Any:
        dimension = self.info.embedding.dimension or 0
        if part.vectors is None:
            return np.zeros((part.rows, 0), dtype=np.float32)
        try:
            mapped = np.load(self._folder / part.vectors.key, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ConfigError(_damaged(self.uri, part.vectors.key, "holds no vectors")) from error
        if mapped.shape != (part.rows, dimension) or mapped.dtype != np.float32:
            what = f"holds {mapped.dtype} {list(mapped.shape)}, not float32 {[part.rows, dimension]}"
            raise ConfigError(_damaged(self.uri, part.vectors.key, what))
        return mapped


def index_identity(uri: str) -> str:
    """16 hex digits of an index's content, from its metadata alone. ConfigError where there is none."""
    return _info(open_store(uri)).identity


def _info(store: Store) -> IndexInfo:
    info = read_info(store)
    if info is None:
        raise ConfigError(
            f"index {store.uri}: no {INFO_KEY} there: it is no index, or its build has not finished; "
            "build it with python -m kb_ray.index"
        )
    return info


def _folder(store: Store, info: IndexInfo) -> Path:
    """A local folder with the index's files."""
    if isinstance(store, LocalStore):
        return Path(store.uri)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kb_ray" / "indexes"
    folder = cache / f"{info.identity}-{hashlib.sha256(store.uri.encode()).hexdigest()[:8]}"
    local = LocalStore(str(folder))
    files = [file for part in info.parts for file in (part.examples, part.vectors) if file]
    for file in [*files, *([info.ann.file] if info.ann else [])]:
        if _size(folder / file.key) != file.size:
            data = store.get(file.key)
            if data is None:
                raise ConfigError(_damaged(store.uri, file.key, "is missing"))
            local.replace(file.key, data)
    return folder


def _check(folder: Path, file: File, uri: str) -> None:
    size = _size(folder / file.key)
    if size != file.size:
        what = "is missing" if size is None else f"has {size} bytes, not {file.size}"
        raise ConfigError(_damaged(uri, file.key, what))
    digest = hashlib.sha256()
    with (folder / file.key).open("rb") as data:
        while chunk := data.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != file.sha256:
        raise ConfigError(_damaged(uri, file.key, "is not what was written"))


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _damaged(uri: str, key: str, what: str) -> str:
    return f"index {uri}: {key} {what}: build the index again, in another folder"
