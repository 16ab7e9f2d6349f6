"""What lies where in an index, and what its metadata says.

    index.json                       written last: an index without it is not finished
    parts/00000-HASH.parquet         examples
    parts/00000-HASH.npy             their vectors, float32 [rows, dimension] of length 1; a lexical index has none
    parts/00000-HASH.verdicts.parquet  what the verifier said of every kernel it was asked about, with --verify
    ann.faiss                        a FAISS index over all vectors, with --ann

Knows names and fields; reads no vectors and no code.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import ValidationError

from kb_ray.errors import ConfigError
from kb_ray.records import Record
from kb_ray.traces.store import Store

FORMAT = 1
INFO_KEY = "index.json"
PARTS_PREFIX = "parts/"
ANN_KEY = "ann.faiss"

AnnKind = Literal["hnsw", "ivf"]


class File(Record):
    """One file of an index."""

    key: str
    size: int
    """Bytes."""
    sha256: str

    @classmethod
    def of(cls, key: str, data: bytes) -> File:
        """The record of what is written under `key`."""
        return cls(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())


class Part(Record):
    """Examples that were embedded together: the unit in which a build goes on after it was killed."""

    rows: int
    examples: File
    vectors: File | None


class Embedding(Record):
    """How programs became vectors."""

    kind: Literal["model", "lexical"]
    model: str | None = None
    """Name on the hub, or the folder it was loaded from."""
    dimension: int | None = None
    normalised: bool = True
    text_version: int
    """Of the text that is made of a program, `program.TEXT_VERSION`."""
    probe: tuple[float, ...] | None = None
    """The vector of a fixed program: another model gives another one."""


class Corpus(Record):
    """What came of one corpus."""

    spec: str
    read: int
    kept: int
    dropped: dict[str, int]
    """Rows that were left out, by reason."""
    sha256: str
    """Of the ids, programs and kernels that were kept, in order."""


class Ann(Record):
    """The FAISS index."""

    kind: AnnKind
    file: File


class IndexInfo(Record):
    """Content of index.json."""

    format: int = FORMAT
    count: int
    embedding: Embedding
    corpora: tuple[Corpus, ...]
    parts: tuple[Part, ...]
    ann: Ann | None = None
    request: dict[str, Any]
    """What the build was asked for: the same request finds its index built."""
    kb_ray: str
    """Version that built it."""
    created_at: str

    @property
    def identity(self) -> str:
        """16 hex digits of the content: equal wherever the index lies, part of a run's fingerprint."""
        named = self.embedding.model_dump(mode="json", exclude={"model"})
        files = [[p.examples.sha256, p.vectors.sha256 if p.vectors else None] for p in self.parts]
        text = json.dumps([self.format, named, files, self.ann.kind if self.ann else None], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def part_name(number: int, content: str) -> str:
    """Key of a part without its ending; `content` is the hash of what goes into it."""
    return f"{PARTS_PREFIX}{number:05d}-{content}"


def read_info(store: Store) -> IndexInfo | None:
    """The metadata; None where there is none. ConfigError where it cannot be understood."""
    data = store.get(INFO_KEY)
    if data is None:
        return None
    try:
        version = json.loads(data).get("format")
        if version != FORMAT:
            raise ConfigError(
                f"index {store.uri}: {INFO_KEY} has format {version}, this kb_ray reads {FORMAT}: build the index again"
            )
        return IndexInfo.model_validate_json(data)
    except (ValueError, AttributeError, ValidationError) as error:
        raise ConfigError(f"index {store.uri}: {INFO_KEY} is damaged: build the index again") from error
