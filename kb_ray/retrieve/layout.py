"""What lies where in an index, and what its metadata says.

    index.json                       written last: an index without it is not finished
    parts/00000-HASH.parquet         examples
    parts/00000-HASH.npy             their vectors, float32 [rows, dimension] of length 1; a lexical index has none
    parts/00000-HASH.verdicts.parquet  what the verifier said of every kernel it was asked about, with --verify
    ann/HNSW-LANGUAGE-HASH.faiss     a FAISS index over the vectors of one language, with --ann

Knows names and fields; reads no vectors and no code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kb_ray.errors import ConfigError
from kb_ray.records import Record
from kb_ray.retrieve.example import Language
from kb_ray.traces.store import Store

FORMAT = 2
INFO_KEY = "index.json"
PARTS_PREFIX = "parts/"
ANN_PREFIX = "ann/"
# Nothing else may lie in an index: what is named in its metadata is read from, and copied to, these places only.
_KEY = r"^(parts/\d{5,9}-[0-9a-f]{16}\.(parquet|npy)|ann/(hnsw|ivf)-(triton|cuda)-[0-9a-f]{16}\.faiss)$"
_VERDICTS = re.compile(r"parts/\d{5,9}-[0-9a-f]{16}\.verdicts\.parquet")

AnnKind = Literal["hnsw", "ivf"]


class File(Record):
    """One file of an index."""

    key: Annotated[str, Field(pattern=_KEY)]
    size: Annotated[int, Field(ge=0)]
    """Bytes."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @classmethod
    def of(cls, key: str, data: bytes) -> File:
        """The record of what is written under `key`."""
        return cls(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())


class Part(Record):
    """Examples that were embedded together: the unit in which a build goes on after it was killed."""

    rows: Annotated[int, Field(ge=1)]
    examples: File
    vectors: File | None

    @model_validator(mode="after")
    def _belong(self) -> Self:
        name, ending = self.examples.key[: -len(".parquet")], self.examples.key[-len(".parquet") :]
        if ending != ".parquet" or (self.vectors is not None and self.vectors.key != f"{name}.npy"):
            raise ValueError("examples and vectors are not of one part")
        return self


class Embedding(Record):
    """How programs became vectors."""

    kind: Literal["model", "lexical"]
    model: str | None = None
    """Name on the hub, or the folder it was loaded from."""
    dimension: Annotated[int, Field(ge=1)] | None = None
    normalised: bool = True
    text_version: int
    """Of the text that is made of a program, `program.TEXT_VERSION`."""
    probe: tuple[float, ...] | None = None
    """The vector of a fixed program: another model gives another one."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "model" and (self.model is None or self.dimension != len(self.probe or ())):
            raise ValueError("a model's name, dimension or probe is missing")
        return self


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
    """The FAISS indexes, one for each language that there is."""

    kind: AnnKind
    files: dict[Language, File]

    @model_validator(mode="after")
    def _named(self) -> Self:
        if any(file.key != _ann_key(self.kind, language, file.sha256) for language, file in self.files.items()):
            raise ValueError("a FAISS file is of another language or kind")
        return self


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

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        vectors = self.embedding.kind == "model"
        if self.count != sum(part.rows for part in self.parts) or not self.parts:
            raise ValueError("the count is not that of the parts")
        if any((part.vectors is not None) != vectors for part in self.parts) or (self.ann is not None and not vectors):
            raise ValueError("vectors do not go with the kind of search")
        numbers = [int(part.examples.key[len(PARTS_PREFIX) :].partition("-")[0]) for part in self.parts]
        if any(second <= first for first, second in pairwise(numbers)):
            raise ValueError("a part is named twice or out of its order")
        return self

    @property
    def files(self) -> list[File]:
        """Every file of the index but its metadata."""
        found = [file for part in self.parts for file in (part.examples, part.vectors) if file]
        return [*found, *(self.ann.files.values() if self.ann else ())]

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


def ann_key(kind: AnnKind, language: Language, data: bytes) -> str:
    """Key of a FAISS file: named by its content, so that no build takes another's away."""
    return _ann_key(kind, language, hashlib.sha256(data).hexdigest())


def _ann_key(kind: AnnKind, language: Language, sha256: str) -> str:
    return f"{ANN_PREFIX}{kind}-{language}-{sha256[:16]}.faiss"


def is_ours(key: str) -> bool:
    """Whether a build could have made a file of this name."""
    return key == INFO_KEY or re.fullmatch(_KEY, key) is not None or _VERDICTS.fullmatch(key) is not None


def foreign(keys: Iterable[str]) -> str | None:
    """One of the names that no build makes: what lies there is not an index alone."""
    return min((key for key in keys if not is_ours(key)), key=lambda key: (key.count("/"), key), default=None)


def read_info(store: Store) -> IndexInfo | None:
    """The metadata; None where there is none. ConfigError where it cannot be understood."""
    data = store.get(INFO_KEY)
    if data is None:
        return None
    try:
        version = json.loads(data).get("format")
        if not isinstance(version, int):
            raise ValueError("the format is no number")
        if version != FORMAT:
            raise ConfigError(
                f"index {store.uri}: {INFO_KEY} has format {version}, this kb_ray reads {FORMAT}: "
                "build the index again, in another folder"
            )
        return IndexInfo.model_validate_json(data)
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"index {store.uri}: {INFO_KEY} is damaged: build the index again, in another folder"
        ) from error
