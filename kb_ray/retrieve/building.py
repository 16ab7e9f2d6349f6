"""Builds an index: corpora to parts of examples and vectors, the metadata last.

Streams: a part is written once it is embedded, and a build that was killed goes on with the parts that are there,
as long as it is asked for the same. Does not know how vectors or verdicts are made, nor what a corpus is.
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import pyarrow.parquet as pq

import kb_ray
from kb_ray.errors import ConfigError, InfraError, StoreError
from kb_ray.retrieve.ann import built
from kb_ray.retrieve.corpus import Found
from kb_ray.retrieve.counting import Batch, Count, batches, told
from kb_ray.retrieve.example import Example, Language
from kb_ray.retrieve.layout import (
    ANN_PREFIX,
    INFO_KEY,
    PARTS_PREFIX,
    Ann,
    AnnKind,
    Embedding,
    File,
    IndexInfo,
    Part,
    ann_key,
    foreign,
    is_ours,
    part_name,
    read_info,
)
from kb_ray.retrieve.part_files import VERDICTS, Earlier, PartFiles
from kb_ray.retrieve.verifying import Outcome, Verified
from kb_ray.traces.store import Store

PART_ROWS = 1024
LANGUAGES: tuple[Language, ...] = ("triton", "cuda")


class Verify(Protocol):
    """What verifies the examples of a part: `verifying.Verifier`."""

    identity: str
    """All that a verdict depends on besides its example: a kept one counts only where this is the same."""

    def __call__(self, examples: Sequence[Example], earlier: Mapping[str, Outcome]) -> list[Verified]:
        """The examples in their order, each with its outcome; `earlier`: what was told before, by example."""
        ...


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

    read: int = 0
    """Rows read of all corpora."""
    embedded: int = 0
    """Examples embedded now."""
    reused: int = 0
    """Examples that an earlier start had embedded."""


@dataclass
class Build:
    """One start of a build. `embedders` None: lexical. `verify` None: kernels are not verified."""

    store: Store
    corpora: Mapping[str, Iterable[Found]]
    embedding: Embedding
    request: dict[str, Any]
    embedders: Embedders | None = None
    verify: Verify | None = None
    ann: AnnKind | None = None
    part_rows: int = PART_ROWS
    say: Callable[[Progress], None] = lambda progress: None
    progress: Progress = field(default_factory=Progress)
    _names: set[str] = field(default_factory=set)
    _unjudged: list[Outcome] = field(default_factory=list)

    def run(self) -> IndexInfo:
        """The finished index; that of another process where it finished the same meanwhile.

        ConfigError where nothing usable was read, StoreError where it cannot be written, InfraError where kernels could
        not be verified: the next start asks about them again.
        """
        self._files = PartFiles(self.store, self.embedding.dimension if self.embedders else None)
        try:
            info = self._made()
            won = self.store.put_if_absent(INFO_KEY, info.model_dump_json(indent=2).encode())
        except StoreError:
            # Whoever finishes first takes away what it does not use, files of ours among them.
            won = False
            if read_info(self.store) is None:
                raise
        there = read_info(self.store)
        if there is not None:
            self._remove_leftovers(there)
        if won:
            return info
        if there is None or there.request != self.request:
            raise ConfigError(f"--output {self.store.uri}: another build finished there meanwhile: name another folder")
        return there

    def _made(self) -> IndexInfo:
        """Everything but the metadata, which it gives."""
        counts = {spec: Count() for spec in self.corpora}
        parts = list(self._parts(counts, set(self.store.list(PARTS_PREFIX))))
        if self._unjudged:
            raise InfraError(
                f"{len(self._unjudged)} kernels could not be verified, for no fault of theirs "
                f"({self._unjudged[0].error or 'no reason'}); all other verdicts are kept: start again to ask once more"
            )
        count = sum(part.rows for part in parts)
        corpora = tuple(counted.corpus(spec) for spec, counted in counts.items())
        if not count:
            raise ConfigError(f"no usable example: {'; '.join(map(told, corpora)) or 'no corpus was read'}")
        return IndexInfo(
            count=count, embedding=self.embedding, corpora=corpora, parts=tuple(parts), ann=self._ann(parts),
            request=self.request, kb_ray=kb_ray.__version__,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip

    def _parts(self, counts: Mapping[str, Count], there: set[str]) -> Iterator[Part]:
        """Every part that holds something, in order, those under way while the next ones are read."""
        pending: deque[tuple[str, Sequence[Example], Any]] = deque()
        ahead = self.embedders.places if self.embedders else 0
        for number, batch in enumerate(batches(self.corpora, counts, self.part_rows)):
            self.progress.read = sum(count.read for count in counts.values())
            name = part_name(number, self._content(batch))
            self._names.add(name)
            earlier = self._files.earlier(name, there)
            kept = None if earlier else self._verified(name, batch, counts, there)
            while pending and (earlier or len(pending) > ahead):
                yield from self._written(*pending.popleft())
            if earlier is not None:
                yield from self._taken(name, earlier, batch, counts, there)
            elif kept is not None:
                ticket = self.embedders.submit([example.text for example in kept]) if self.embedders and kept else None
                pending.append((name, kept, ticket))
        while pending:
            yield from self._written(*pending.popleft())

    def _verified(self, name: str, batch: Batch, counts: Mapping[str, Count], there: set[str]) -> list[Example] | None:
        """What is kept of a batch; None where another start has to ask about some of it again."""
        if self.verify is None:
            return [example for _, example in batch]
        verified = self.verify([example for _, example in batch], self._files.outcomes(name, there))
        self._files.keep_outcomes(name, verified)
        open_ = [item.outcome for item in verified if item.outcome.to_be_asked]
        self._unjudged += open_
        if open_:
            return None
        for (spec, _), item in zip(batch, verified, strict=True):
            if not item.outcome.correct:
                counts[spec].refuse(item.outcome)
        return [item.example for item in verified if item.outcome.correct]

    def _written(self, name: str, examples: Sequence[Example], ticket: Any) -> Iterator[Part]:
        vectors = self.embedders.result(ticket) if self.embedders is not None and ticket is not None else None
        part = self._files.write(name, examples, vectors)
        self.progress.embedded += len(examples)
        self.say(self.progress)
        if part is not None:
            yield part

    def _taken(
        self, name: str, earlier: Earlier, batch: Batch, counts: Mapping[str, Count], there: set[str]
    ) -> Iterator[Part]:
        """A part that an earlier start wrote: all of its batch but what the verifier refused."""
        kept = set(earlier.ids)
        told_of = self._files.outcomes(name, there) if len(kept) < len(batch) else {}
        for spec, example in batch:
            if example.example_id not in kept:
                counts[spec].refuse(told_of.get(example.example_id))
        self.progress.reused += len(kept)
        self.say(self.progress)
        if earlier.part is not None:
            yield earlier.part

    def _content(self, batch: Batch) -> str:
        """16 hex digits of what a part is made of: the same only where it would be made alike."""
        digest = hashlib.sha256(self.embedding.model_dump_json().encode())
        digest.update((self.verify.identity if self.verify else "").encode())
        for _, example in batch:
            digest.update(example.model_dump_json().encode())
        return digest.hexdigest()[:16]

    def _ann(self, parts: Sequence[Part]) -> Ann | None:
        """A FAISS index for each language: a search for one must not have to look through the other."""
        if self.ann is None:
            return None
        arrays = [np.load(io.BytesIO(self._files.read(p.vectors.key)), allow_pickle=False) for p in parts if p.vectors]
        vectors, languages = np.concatenate(arrays), np.concatenate([self._languages(part) for part in parts])
        files: dict[Language, File] = {}
        for language in LANGUAGES:
            chosen = vectors[languages == language]
            if len(chosen):
                data = built(np.ascontiguousarray(chosen), self.ann)
                files[language] = File.of(ann_key(self.ann, language, data), data)
                self.store.put_if_absent(files[language].key, data)
        return Ann(kind=self.ann, files=files)

    def _languages(self, part: Part) -> Any:
        table = pq.read_table(io.BytesIO(self._files.read(part.examples.key)), columns=["language"])
        return np.array(table["language"].to_pylist())

    def _remove_leftovers(self, info: IndexInfo) -> None:
        """Files of starts that were asked for something else, or came too late; the verdicts of this one stay."""
        used = {file.key for file in info.files}
        if info.request == self.request:
            used |= {name + VERDICTS for name in self._names}
        for key in (*self.store.list(PARTS_PREFIX), *self.store.list(ANN_PREFIX)):
            if key not in used and is_ours(key):
                self.store.delete(key)


def check_output(store: Store, request: Mapping[str, Any]) -> IndexInfo | None:
    """The index that `store` holds, where it is the one asked for. ConfigError where it is another, or where there is
    anything but an index, finished or not.
    """
    info = read_info(store)
    if info is None and (other := foreign(store.list(""))) is not None:
        raise ConfigError(
            f"--output {store.uri} holds {other}, which is no part of an index: name a folder or prefix of its own"
        )
    if info is None or info.request == request:
        return info
    differing = [name for name in request if request[name] != info.request.get(name)]
    if differing == ["corpus-content"]:
        raise ConfigError(
            f"--output {store.uri} holds an index of {info.count} examples of what the corpus was before it changed: "
            "name another folder"
        )
    raise ConfigError(
        f"--output {store.uri} holds an index of {info.count} examples built with "
        f"{info.embedding.model or 'lexical search'} and another {', '.join(differing) or 'request'}: "
        "name another folder"
    )
