"""Examples for a task: searches the index for its program, and chooses from the nearest.

Asks for ever more of the nearest until enough are left, or says why there are fewer. Does not know how examples are
worded in a prompt, nor what a run is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kb_ray.errors import ConfigError
from kb_ray.retrieve.choosing import Candidate, Choice, choose
from kb_ray.retrieve.computed import telling, telling_entry
from kb_ray.retrieve.example import Example, Language
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.leaking import Asked, Bounds, asked_id, task_of, without_leaks
from kb_ray.retrieve.nearest import Nearest
from kb_ray.retrieve.program import TEXT_VERSION, known_core, overlap
from kb_ray.retrieved import Retrieved, RetrievedExample

_FIRST_POOL = 16
_GROWTH = 2
_ENOUGH_FOR_A_BUDGET = 512
"""Rows after which no shorter ones are looked for."""
_NO_TRITON = "the index has no more programs that are not CUDA"
_NO_MORE = "the index has no more programs"
LEAK_SIMILARITY = 0.995
"""Cosine from which a program counts as the task itself."""


@dataclass(frozen=True)
class Limits:
    """What is asked of each lookup."""

    count: int
    """Examples wanted."""
    tokens: int
    """Of all examples together, at most, as `tokens_of` counts."""
    leak_overlap: float
    """Overlap of programs from which one is the other."""
    cuda: bool = False
    """Whether CUDA examples may be shown."""
    leak_similarity: float = LEAK_SIMILARITY
    """Cosine of embeddings from which one program is the other; an index of words has none."""


@dataclass(frozen=True)
class _Looked:
    """What came of looking at some of the nearest."""

    choice: Choice
    leaked: int
    rows: int
    """Looked at, besides those that are the task itself."""


class Search:
    """Looks examples up in one index. Thread-safe.

    `model`: name or folder of the embedding model, where it is not the one that the index names. `tokens_of` says what
    an example takes in a prompt. ConfigError where the model is another than the index was built with.
    """

    def __init__(self, index: Index, tokens_of: Callable[[Example], int], model: str | None = None) -> None:
        self.index, self._tokens_of = index, tokens_of
        version = index.info.embedding.text_version
        if version != TEXT_VERSION:
            raise ConfigError(
                f"index {index.uri}: built from texts of version {version}, this kb_ray makes {TEXT_VERSION}: "
                "build it again"
            )
        self._nearest = Nearest(index, model)
        self._by_digest = _rows_by([[digest] for digest in index.digests])
        right = [index.digests[row] for row in range(len(index)) if index.merits[row][0]]
        right_triton = [index.digests[row] for row in range(len(index)) if index.merits[row][:2] == (True, True)]
        self._right = {True: frozenset(right), False: frozenset(right_triton)}
        """By whether CUDA examples may be shown: programs that have a kernel not known to be wrong."""
        self._by_operations = _rows_by([telling(lines) for lines in index.operations])
        self._by_task = _rows_by([{asked_id(given), task_of(given)} for given in index.example_ids])

    def examples(
        self, program: str, limits: Limits, task_id: str | None = None, entry_point: str | None = None
    ) -> tuple[list[Example], Retrieved]:
        """Examples for a PyTorch program, the best first, and how they came about; see `rows`."""
        rows, retrieved = self.rows(program, limits, task_id, entry_point)
        return [self.index.example(row) for row in rows], retrieved

    def rows(
        self, program: str, limits: Limits, task_id: str | None = None, entry_point: str | None = None
    ) -> tuple[tuple[int, ...], Retrieved]:
        """The rows of examples for a PyTorch program, the best first, and how they came about.

        What is of the same `task_id` counts as the task itself. `entry_point`: the program's class or function.
        """
        task = Asked.of(program, entry_point)
        itself = self._itself(task, task_id)
        bounds = Bounds(limits.leak_overlap, limits.leak_similarity if self._nearest.is_cosine else None)
        looked = self._look(task, limits, bounds, itself)
        chosen, leaks = looked.choice.chosen, len(itself) + looked.leaked
        note = None if len(chosen) == limits.count else _why(looked, leaks, limits)
        shown = [self.index.example(candidate.row) for candidate in chosen]
        return tuple(candidate.row for candidate in chosen), Retrieved(
            index=self.index.info.identity,
            wanted=limits.count,
            examples=tuple(
                RetrievedExample(
                    example_id=example.example_id, language=example.language, score=candidate.score,
                    overlap=overlap(candidate.core.runs, task.core.runs),
                )
                for example, candidate in zip(shown, chosen, strict=True)
            ),
            leak_overlap=limits.leak_overlap,
            leak_similarity=bounds.similarity,
            leaks=leaks,
            note=note,
        )  # fmt: skip

    def _look(self, task: Asked, limits: Limits, bounds: Bounds, itself: frozenset[int]) -> _Looked:
        """Looks at more and more of the nearest, until as many are found as are wanted, no two alike."""
        languages: tuple[Language, ...] = ("triton", "cuda") if limits.cuda else ("triton",)
        there = self._nearest.count(languages)
        asked = self._nearest.asked(task.core.text)
        size = max(_FIRST_POOL, 4 * limits.count)
        known: dict[int, Candidate] = {}
        while True:
            wanted = min(size + len(itself), there)
            rows, scores = self._nearest.top(asked, languages, wanted)
            for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
                if row not in itself and row not in known and not self._is_outdone(row, limits.cuda):
                    known[row] = self._candidate(row, score)
            found = without_leaks(list(known.values()), task, bounds)
            choice = choose(found.clean, limits.count, limits.tokens)
            looked = _Looked(choice, len(found.leaked), len(known))
            enough = len(choice.chosen) == limits.count and choice.unlike
            dear = choice.programs >= limits.count > len(choice.chosen) and len(known) >= _ENOUGH_FOR_A_BUDGET
            if enough or dear or limits.tokens <= 0 or wanted >= there:
                return looked
            size *= _GROWTH

    def _itself(self, task: Asked, task_id: str | None) -> frozenset[int]:
        """Rows that are the task, wherever they rank."""
        by_id = self._by_task.get(asked_id(task_id), ()) if task_id else ()
        computing = self._by_operations.get(telling_entry(task.operations), ())
        return frozenset((*self._by_digest.get(task.core.digest, ()), *computing, *by_id))

    def _is_outdone(self, row: int, cuda: bool) -> bool:
        """Whether a kernel is known to be wrong, and its program has one that is not, though perhaps a longer one."""
        return not self.index.merits[row][0] and self.index.digests[row] in self._right[cuda]

    def _candidate(self, row: int, score: float) -> Candidate:
        example = self.index.example(row)
        return Candidate(
            row=row, score=score, core=known_core(example.text, example.digest), merit=self.index.merits[row],
            tokens=self._tokens_of(example), operations=example.operations,
        )  # fmt: skip


def shortage(note: str) -> str:
    """Why a lookup gave fewer than asked, by its note, without the figures of the one task."""
    known = next((reason for reason in (_NO_TRITON, _NO_MORE) if reason in note), None)
    return known or "no more fit into the tokens left for them"


def _why(looked: _Looked, leaks: int, limits: Limits) -> str:
    found = len(looked.choice.chosen)
    if looked.choice.programs > found:
        of = f" of the {looked.rows} nearest" if looked.rows >= _ENOUGH_FOR_A_BUDGET else ""
        return f"{found} of {limits.count}: no more{of} fit into {limits.tokens} tokens"
    reason = _NO_MORE if limits.cuda else _NO_TRITON
    return f"{found} of {limits.count}: {reason}, {leaks} rows being the task itself"


def _rows_by(values: Sequence[Collection[str]]) -> dict[str, list[int]]:
    """Rows by each of their marks."""
    found: dict[str, list[int]] = {}
    for row, marks in enumerate(values):
        for mark in marks:
            found.setdefault(mark, []).append(row)
    return found
