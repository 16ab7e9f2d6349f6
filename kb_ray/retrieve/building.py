"""Builds an index: corpora to parts of examples and vectors, the metadata last.

Streams: a part is written once it is embedded, and a build that was killed goes on with the parts that are there,
as long as it is asked for the same. Does not know how vectors or verdicts are made, nor what a corpus is.
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np

import kb_ray
from kb_ray.errors import ConfigError, StoreError
from kb_ray.retrieve.ann import built
from kb_ray.retrieve.corpus import Found
from kb_ray.retrieve.counting import Batch, Count, batches, told
from kb_ray.retrieve.example import Example, encode
from kb_ray.retrieve.layout import (
    ANN_KEY,
    INFO_KEY,
    PARTS_PREFIX,
    Ann,
    AnnKind,
    Embedding,
    File,
    IndexInfo,
    Part,
    part_name,
    read_info,
)
from kb_ray.retrieve.verifying import Verified, encode_verdicts
from kb_ray.traces.store import Store

PART_ROWS = 1024


class Embedders(Protocol):
    """What embeds parts, several at once: `fleet.Fleet`."""

    places: int
    """Parts worth handing over before the first one is back."""

    def submit(self, texts: Sequence[str]) -> Any:
        """Begins with the texts of a part's programs; a ticket."""
        ...

    def result(self, ticket: Any) -> Any:
        """Waits for [texts, dimension] float32."""
        ...


@dataclass
class Progress:
    """How far a build is."""

    embedded: int = 0
    """Examples embedded now."""
    reused: int = 0
    """Examples that an earlier start had embedded."""


@dataclass
class Build:
    """One start of a build. `embedders` None: lexical. `verify` None: kernels are not verified."""

    store: Store
    corpora: Mapping[str, Iterator[Found]]
    embedding: Embedding
    request: dict[str, Any]
    embedders: Embedders | None = None
    verify: Callable[[Sequence[Example]], list[Verified]] | None = None
    ann: AnnKind | None = None
    part_rows: int = PART_ROWS
    say: Callable[[Progress], None] = lambda progress: None
    progress: Progress = field(default_factory=Progress)

    def run(self) -> IndexInfo:
        """The finished index. ConfigError where nothing usable was read, StoreError where it cannot be written."""
        counts = {spec: Count() for spec in self.corpora}
        there = set(self.store.list(PARTS_PREFIX))
        parts = [part for part in self._parts(counts, there) if part.rows]
        count = sum(part.rows for part in parts)
        corpora = tuple(counted.corpus(spec) for spec, counted in counts.items())
        if not count:
            raise ConfigError(f"no usable example: {'; '.join(map(told, corpora)) or 'no corpus was read'}")
        info = IndexInfo(
            count=count, embedding=self.embedding, corpora=corpora, parts=tuple(parts), ann=self._ann(parts),
            request=self.request, kb_ray=kb_ray.__version__,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip
        if not self.store.put_if_absent(INFO_KEY, info.model_dump_json(indent=2).encode()):
            raise ConfigError(f"--output {self.store.uri}: another build finished there meanwhile: name another folder")
        self._remove_leftovers(info)
        return info

    def _parts(self, counts: Mapping[str, Count], there: set[str]) -> Iterator[Part]:
        """Every part in order, those under way while the next ones are read."""
        pending: deque[tuple[str, Sequence[Example], Any]] = deque()
        ahead = self.embedders.places if self.embedders else 0
        for number, batch in enumerate(batches(self.corpora, counts, self.part_rows)):
            name = part_name(number, self._content(batch))
            needed = {f"{name}.parquet"} | ({f"{name}.npy"} if self.embedders else set())
            if needed <= there:
                while pending:
                    yield self._written(*pending.popleft())
                yield self._found(name, batch, counts)
                continue
            kept = self._verified(name, batch, counts)
            ticket = self.embedders.submit([example.text for example in kept]) if self.embedders and kept else None
            pending.append((name, kept, ticket))
            while len(pending) > ahead:
                yield self._written(*pending.popleft())
        while pending:
            yield self._written(*pending.popleft())

    def _verified(self, name: str, batch: Batch, counts: Mapping[str, Count]) -> list[Example]:
        if self.verify is None:
            return [example for _, example in batch]
        verified = self.verify([example for _, example in batch])
        self.store.put_if_absent(f"{name}.verdicts.parquet", encode_verdicts(verified))
        for (spec, _), item in zip(batch, verified, strict=True):
            if not item.correct:
                counts[spec].refuse()
        return [item.example for item in verified if item.correct]

    def _written(self, name: str, examples: Sequence[Example], ticket: Any) -> Part:
        """Writes a part, its rows last: with them it is whole."""
        vectors = None
        if self.embedders is not None:
            found = (
                self.embedders.result(ticket) if ticket is not None else np.zeros((0, self.embedding.dimension or 0))
            )
            vectors = self._put(f"{name}.npy", _npy(found))
        rows = self._put(f"{name}.parquet", encode(examples))
        self.progress.embedded += len(examples)
        self.say(self.progress)
        return Part(rows=len(examples), examples=rows, vectors=vectors)

    def _found(self, name: str, batch: Batch, counts: Mapping[str, Count]) -> Part:
        """A part that an earlier start wrote."""
        import pyarrow.parquet as pq

        data = self._read(f"{name}.parquet")
        kept = deque(pq.read_table(io.BytesIO(data), columns=["example_id"])["example_id"].to_pylist())
        rows = len(kept)
        # In the batch's order, but for those that the verifier refused.
        for spec, example in batch:
            if kept and kept[0] == example.example_id:
                kept.popleft()
            else:
                counts[spec].refuse()
        vectors = File.of(f"{name}.npy", self._read(f"{name}.npy")) if self.embedders else None
        self.progress.reused += rows
        self.say(self.progress)
        return Part(rows=rows, examples=File.of(f"{name}.parquet", data), vectors=vectors)

    def _put(self, key: str, data: bytes) -> File:
        """Writes `key`; where it is there already, from a start that was killed in between, that one counts."""
        return File.of(key, data if self.store.put_if_absent(key, data) else self._read(key))

    def _read(self, key: str) -> bytes:
        data = self.store.get(key)
        if data is None:
            raise StoreError(f"index {self.store.uri}: {key} vanished while building, start again")
        return data

    def _content(self, batch: Batch) -> str:
        """16 hex digits of what a part is made of: the same only where it would be made alike."""
        digest = hashlib.sha256(self.embedding.model_dump_json().encode())
        digest.update(repr(self.request.get("verify")).encode())
        for _, example in batch:
            digest.update(example.model_dump_json().encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:16]

    def _ann(self, parts: Sequence[Part]) -> Ann | None:
        if self.ann is None:
            return None
        arrays = [np.load(io.BytesIO(self._read(p.vectors.key)), allow_pickle=False) for p in parts if p.vectors]
        # The last step before the metadata: what an earlier start left is of other parts.
        data = built(np.concatenate(arrays), self.ann)
        self.store.replace(ANN_KEY, data)
        return Ann(kind=self.ann, file=File.of(ANN_KEY, data))

    def _remove_leftovers(self, info: IndexInfo) -> None:
        """Parts of earlier starts that were asked for something else."""
        used = {part.examples.key.removesuffix(".parquet") for part in info.parts}
        for key in self.store.list(PARTS_PREFIX):
            if key.partition(".")[0] not in used and not key.endswith(".verdicts.parquet"):
                self.store.delete(key)


def check_output(store: Store, request: Mapping[str, Any]) -> IndexInfo | None:
    """The index that `store` holds, where it is the one asked for. ConfigError where it is another."""
    info = read_info(store)
    if info is None or info.request == request:
        return info
    differing = [name for name in request if request[name] != info.request.get(name)]
    raise ConfigError(
        f"--output {store.uri} holds an index of {info.count} examples built with "
        f"{info.embedding.model or 'lexical search'} and another {', '.join(differing) or 'request'}: "
        "name another folder"
    )


def _npy(vectors: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.ascontiguousarray(vectors, dtype=np.float32), allow_pickle=False)
    return out.getvalue()
