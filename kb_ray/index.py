"""`python -m kb_ray.index --output INDEX`: builds an index of examples for --prompt raicl.

Corpora to vectors on Ray, or to words without it. A build that was stopped goes on when it is started again. Exit
codes: 0 built or there already, 2 unusable input, 1 the store, Ray or the verifier fails, 130 and 143 stopped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_settings import SettingsConfigDict

from kb_ray import cluster
from kb_ray.bench.api import evaluate_on_ray
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchSettings
from kb_ray.bench.static import check_static
from kb_ray.command_options import parse_options
from kb_ray.env_vars import load_dotenv
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.exiting import end, exit_on_signals
from kb_ray.records import Status
from kb_ray.retrieve import ann, lexical
from kb_ray.retrieve.building import PART_ROWS, Build, Progress, check_output
from kb_ray.retrieve.corpus import Rows, Wanted, content_of, read_corpus, wanted_specs
from kb_ray.retrieve.counting import told
from kb_ray.retrieve.embedding import is_folder
from kb_ray.retrieve.example import Language
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.layout import AnnKind, Embedding, IndexInfo
from kb_ray.retrieve.local_copy import told_of_index
from kb_ray.retrieve.program import TEXT_VERSION
from kb_ray.retrieve.verifying import Verifier
from kb_ray.traces.store import Store, open_store
from kb_ray.training.inductor import computed_by_pytorch, in_plain_pytorch

_SAY_EVERY_S = 10.0
_REFUSALS = {
    Status.NO_KERNEL: "kernel has no entry point or no Triton kernel", Status.SYNTAX_ERROR: "kernel is no valid Python",
}  # fmt: skip
_VERIFIED_PART_ROWS = 64
"""With --verify a part takes minutes: smaller ones lose less."""


class IndexOptions(BaseModel):
    """Build an index of PyTorch programs and their kernels, from which prompts take examples."""

    model_config = SettingsConfigDict(
        cli_prog_name="python -m kb_ray.index", use_attribute_docstrings=True, frozen=True, cli_implicit_flags=True,
        cli_kebab_case=True,
    )  # fmt: skip

    output: str
    """Local folder or s3://BUCKET/PREFIX of the index."""
    corpus: list[str] = []
    """Where examples come from, repeatable: kernelbook, sakana, traces:STORE, file:PATH. Default: the first two."""
    triton_only: bool = False
    """Only Triton kernels."""
    cuda_only: bool = False
    """Only CUDA kernels."""
    sakana_levels: str = "1,2,3"
    """Levels of Sakana's archive."""
    include_incorrect: bool = False
    """Also kernels that the archive calls incorrect."""
    verify: bool = False
    """Run every kernel through the verifier, keep its verdicts, and take only what is correct."""
    skip_corrupt: bool = False
    """Leave damaged files of a trace store out, and name them."""
    timeout: float = Field(60.0, gt=0, le=3600)
    """With --verify: seconds for each phase of a verdict."""
    model: str = "BAAI/bge-code-v1"
    """Embedding model: any of sentence-transformers, by name on the hub or as a folder."""
    embed_with: Literal["model", "lexical"] = "model"
    """lexical: search by words (BM25), without any model."""
    batch_size: int = Field(32, ge=1, le=4096)
    """Programs that the model takes at once."""
    workers: int | None = Field(None, ge=1, le=1024)
    """Actors that embed. Default: one per GPU, else one."""
    ann: AnnKind | None = None
    """hnsw or ivf: approximate search by FAISS, for more than some hundred thousand examples."""
    part_rows: int | None = Field(None, ge=1, le=100_000)
    """Examples in one part, the unit in which a stopped build goes on. Default: 1024, with --verify 64."""
    ray_address: str | None = None
    """Ray cluster to use, as host:port; otherwise RAY_ADDRESS, or one started here."""


def build(options: IndexOptions) -> IndexInfo:
    """Builds what is asked for, or takes what was built for the same before.

    ConfigError, StoreError and InfraError as the parts raise them.
    """
    languages = _languages(options)
    levels = _levels(options.sakana_levels)
    wanted = Wanted(
        languages,
        levels,
        options.include_incorrect,
        plain=in_plain_pytorch,
        skip_corrupt=options.skip_corrupt,
        say=_say,
        refused=_refused,
    )
    specs = wanted_specs(options.corpus, languages)
    if not specs:
        raise ConfigError(f"--corpus {' '.join(options.corpus)}: holds none of {', '.join(sorted(languages))}")
    store = open_store(options.output)
    with told_of_index(store.uri):
        return _build(options, specs, wanted, store)


def _build(options: IndexOptions, specs: Sequence[str], wanted: Wanted, store: Store) -> IndexInfo:
    languages = wanted.languages
    store.check_writable()
    request = _request(options, specs)
    if (there := check_output(store, request)) is not None:
        Index(options.output)  # refuses one that was damaged since
        print(f"there already, built {there.created_at}; for another one name another folder")
        return there
    _check_installed(options)
    corpora = {spec: _only(read_corpus(spec, wanted), languages) for spec in specs}
    totals = [rows.total for rows in corpora.values()]
    total = sum(number for number in totals if number is not None) if None not in totals else None
    with _connected(options) as joined, _embedders(options, joined) as (fleet, embedding):
        rows = options.part_rows or (_VERIFIED_PART_ROWS if options.verify else PART_ROWS)
        return Build(
            store, corpora, embedding, request, embedders=fleet, verify=_verifier(options, joined), ann=options.ann,
            part_rows=rows, say=_teller(total),
        ).run()  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    try:
        load_dotenv()
        options = parse_options(IndexOptions, sys.argv[1:] if argv is None else argv)
        info = build(options)
    except KbRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    for corpus in info.corpora:
        print(f"corpus:    {told(corpus)}")
    embedding = info.embedding
    how = f"{embedding.model}, {embedding.dimension} numbers each" if embedding.model else "words (BM25)"
    print(f"examples:  {info.count}, by {how}" + (f", {info.ann.kind}" if info.ann else ""))
    print(f"index:     {open_store(options.output).uri} ({info.identity})")
    return 0


def _languages(options: IndexOptions) -> frozenset[Language]:
    if options.triton_only and options.cuda_only:
        raise ConfigError("--triton-only and --cuda-only exclude each other: give one")
    if options.cuda_only and options.verify:
        raise ConfigError("--verify: only Triton kernels can be verified, leave out --cuda-only")
    if options.ann and options.embed_with == "lexical":
        raise ConfigError("--ann searches vectors: leave out --embed-with lexical")
    one: Language | None = "triton" if options.triton_only else "cuda" if options.cuda_only else None
    return frozenset({one}) if one else frozenset({"triton", "cuda"})


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _levels(text: str) -> tuple[int, ...]:
    levels = [level.strip() for level in text.split(",") if level.strip()]
    if not levels or any(level not in ("1", "2", "3") for level in levels):
        raise ConfigError(f"--sakana-levels {text}: give some of 1,2,3")
    return tuple(sorted({int(level) for level in levels}))


def _request(options: IndexOptions, specs: Sequence[str]) -> dict[str, Any]:
    """What decides the content of an index."""
    lexical_search = options.embed_with == "lexical"
    return {
        "corpus": list(specs),
        "corpus-content": [content_of(spec) for spec in specs],
        "languages": sorted(_languages(options)),
        "sakana-levels": list(_levels(options.sakana_levels)),
        "include-incorrect": options.include_incorrect,
        "skip-corrupt": options.skip_corrupt,
        "verify": {"timeout": options.timeout, "verifier": VERIFIER_VERSION} if options.verify else False,
        "model": None if lexical_search else options.model,
        "embed-with": options.embed_with,
        "ann": options.ann,
    }


def _check_installed(options: IndexOptions) -> None:
    if options.embed_with == "lexical":
        lexical.check_available()
    if options.ann:
        ann.check_available()


def _refused(code: str) -> str | None:
    """Why our verifier would not run Triton code, or what it would lack there."""
    if computed_by_pytorch(code):
        return "kernel is computed by PyTorch"
    finding = check_static(code)
    return None if finding is None else _REFUSALS.get(finding.status, "kernel breaks the verifier's rules")


def _only(rows: Rows, languages: frozenset[Language]) -> Rows:
    told_of = (f if isinstance(f, str) or f.language in languages else "of another language" for f in rows)
    return Rows(told_of, rows.total)


@contextmanager
def _connected(options: IndexOptions) -> Iterator[cluster.Cluster | None]:
    """Ray, where it is needed."""
    if options.embed_with == "lexical" and not options.verify:
        yield None
        return
    joined = cluster.connect(f"index-{os.getpid()}", options.ray_address)
    try:
        yield joined
    finally:
        cluster.disconnect()


@contextmanager
def _embedders(options: IndexOptions, joined: cluster.Cluster | None) -> Iterator[tuple[Any, Embedding]]:
    """(the actors, how they embed); no actors for a lexical index."""
    if options.embed_with == "lexical" or joined is None:
        yield None, Embedding(kind="lexical", text_version=TEXT_VERSION)
        return
    from kb_ray.retrieve.fleet import Fleet

    model = os.path.abspath(os.path.expanduser(options.model)) if is_folder(options.model) else options.model
    # Verifying wants the GPUs whole.
    gpus = 0 if options.verify else joined.gpus
    fleet = Fleet(model, gpus=gpus, cpus=joined.cpus, workers=options.workers, batch_size=options.batch_size)
    try:
        yield (
            fleet,
            Embedding(
                kind="model", model=model, dimension=fleet.dimension, text_version=TEXT_VERSION, probe=fleet.probe
            ),
        )
    finally:
        fleet.close()


def _verifier(options: IndexOptions, joined: cluster.Cluster | None) -> Verifier | None:
    if not options.verify or joined is None:
        return None
    settings = BenchSettings(timeout_s=options.timeout, device="cuda" if joined.gpus else "cpu")
    return Verifier(evaluate_on_ray, settings, concurrency=8 * max(1, joined.gpus))


def _teller(total: int | None) -> Callable[[Progress], None]:
    """Says how far a build is every few seconds; `total`: rows of all corpora, where they are known."""
    started = last = time.monotonic()

    def say(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SAY_EVERY_S:
            last = now
            rate = progress.embedded / max(now - started, 1e-9)
            there = f", {progress.reused} there already" if progress.reused else ""
            read = f"{progress.read} of {total} rows" if total is not None else f"{progress.read} rows"
            print(
                f"{read} read, {progress.embedded} examples indexed{there} | {rate:.0f}/s", file=sys.stderr, flush=True
            )

    return say


if __name__ == "__main__":
    exit_on_signals()
    end(main)
