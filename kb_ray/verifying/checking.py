"""A whole store, checked: every file and row once, then what they say of each other, of the plan and of a compaction.

Reads only, in bounded memory: of each episode a few numbers are kept. Tells nobody.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context

import pyarrow as pa

from kb_ray.errors import ConfigError, StoreError
from kb_ray.traces import layout
from kb_ray.traces.columns import SCHEMA_VERSION
from kb_ray.traces.left_out import left_out
from kb_ray.traces.part_index import FACTS, read_index
from kb_ray.traces.plans import PLANS_PREFIX, Pairs, read_plans
from kb_ray.traces.resume import read_columns
from kb_ray.traces.run import RunInfo, fingerprint, read_run
from kb_ray.traces.starts import Start, starts_and_unread
from kb_ray.traces.store import LocalStore, Store, StoreUnavailable
from kb_ray.verifying.accounting import Ledger
from kb_ray.verifying.files import look_through, look_through_at
from kb_ray.verifying.findings import Fault, FileRows, Soundness
from kb_ray.verifying.moments import odd_moments
from kb_ray.verifying.opening import template_of
from kb_ray.verifying.rules import Rules, rules_of, trained

_KEYS = ("task_id", "sample", "attempt")
_OF_TRAINING = ("command", "judged_on")
"""Settings that a training run's identity has beside those of its fingerprint."""


def check(store: Store, processes: int = 1) -> Soundness:
    """Everything that is wrong with the store. `processes` look through files side by side.

    ConfigError where it holds neither run nor episodes, or something of a newer kb_ray; StoreError where it fails.
    """
    run = read_run(store)
    manifest, faults = _manifest(store)
    keys = layout.sources(store) if not faults else layout.list_parts(store) + layout.list_finals(store)
    if run is None and not keys and not faults:
        raise ConfigError(f"trace store {store.uri}: no run here, name the --output of a run")
    rules = rules_of(run)
    ledger = Ledger(rules.same_wording)
    there = frozenset(keys) & frozenset(layout.list_parts(store) + layout.list_finals(store))
    faults += [
        Fault(kind="compaction", part=key, what="named by the manifest, not there") for key in keys if key not in there
    ]
    hashes = {file.key: file for file in manifest.files} if manifest else {}
    told_of = read_index(store)
    # Parts and indices that a run has added since the first look.
    gone = sorted(told_of.keys() - there - frozenset(layout.list_parts(store)))
    for file in _files(store, [key for key in keys if key in there], rules, hashes, processes):
        faults += [*file.faults, *ledger.add(file), *_indexed(file, told_of.get(file.key))]
        told = hashes.get(file.key)
        if told and file.count and file.count != told.rows:
            what = f"holds {file.count} rows, the manifest says {told.rows}"
            faults.append(Fault(kind="compaction", part=file.key, what=what))
    faults += [*ledger.attempts(), *(_compacted(store, manifest, ledger) if manifest else ())]
    faults += [fault for key in gone for fault in ledger.gone(key, _names(told_of[key]))]
    faults += _faults_of_run(run) if run is not None else ()
    plans, unread = read_plans(store)
    faults += [Fault(kind="plan", part=key, what="is no plan") for key in unread]
    starts, unread = starts_and_unread(store)
    faults += [Fault(kind="start", part=key, what="is no word of a start") for key in unread]
    return _sum_up(store, run, len(keys), ledger, plans, starts, faults)


def _faults_of_run(run: RunInfo) -> Iterator[Fault]:
    """What cannot be in a run.json, though it can be read."""
    if not 1 <= run.schema_version <= SCHEMA_VERSION:
        what = f"schema version {run.schema_version}, this kb_ray knows 1 to {SCHEMA_VERSION}"
        yield Fault(kind="identity", part=layout.RUN_KEY, what=what)
    if _fingerprint(run) != run.fingerprint:
        yield Fault(kind="identity", part=layout.RUN_KEY, what="its settings are not those of its fingerprint")


def _fingerprint(run: RunInfo) -> str:
    """A training run's is its command's own: another form of the same settings."""
    if not trained(run) or rules_of(run).rejudged:
        return fingerprint(run.identity)
    settings = {name: value for name, value in run.identity.items() if name not in _OF_TRAINING}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _manifest(store: Store) -> tuple[layout.Manifest | None, list[Fault]]:
    try:
        return layout.read_manifest(store), []
    except StoreUnavailable:
        raise
    except StoreError as error:
        if "upgrade kb_ray" in str(error):
            raise ConfigError(str(error)) from error
        what = "is damaged; without it every file of final/ and parts/ counts"
        return None, [Fault(kind="manifest", part=layout.MANIFEST_KEY, what=what)]


def _files(
    store: Store, keys: Sequence[str], rules: Rules, hashes: dict[str, layout.FinalFile], processes: int
) -> Iterator[FileRows]:
    """In the order of `keys`, whichever is done first."""
    expected = [hashes[key].sha256 if key in hashes else "" for key in keys]
    if processes == 1 or len(keys) < 2:
        yield from (look_through(store, key, rules, sha256) for key, sha256 in zip(keys, expected, strict=True))
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        count = len(keys)
        yield from pool.map(look_through_at, [store.uri] * count, keys, [rules] * count, expected)


def _indexed(file: FileRows, told: pa.Table | None) -> Iterator[Fault]:
    """Whether an index says of the part what is in it: starts believe it."""
    if told is None or len(file.rows) != file.count or any(fault.kind == "file" for fault in file.faults):
        return
    rows = [tuple(map(str, row)) for row in zip(*(told.column(name).to_pylist() for name in FACTS), strict=True)]
    if rows != [tuple(str(getattr(row, name)) for name in FACTS) for row in file.rows]:
        yield Fault(kind="index", part=file.key, what="an index says that it holds other episodes: delete index/")


def _names(table: pa.Table) -> Iterator[tuple[str, int, int]]:
    return zip(*(table.column(name).to_pylist() for name in _KEYS), strict=True)


def _compacted(store: Store, manifest: layout.Manifest, ledger: Ledger) -> Iterator[Fault]:
    total = sum(file.rows for file in manifest.files)
    if total != manifest.rows:
        what = f"says {manifest.rows} rows, its files have {total}"
        yield Fault(kind="compaction", part=layout.MANIFEST_KEY, what=what)
    taken = frozenset(manifest.parts)
    for key in (key for key in layout.list_parts(store) if key in taken):
        try:
            for _, table in read_columns(store, [key], _KEYS):
                yield from ledger.covers(key, _names(table))
        except StoreUnavailable:
            raise
        except StoreError:
            yield Fault(kind="file", part=key, what="cannot be read; its episodes are in the final files")


def _sum_up(
    store: Store, run: RunInfo | None, files: int, ledger: Ledger, plans: dict[str, Pairs], starts: Sequence[Start],
    faults: Sequence[Fault],
) -> Soundness:  # fmt: skip
    lost = list(ledger.lost(plans, starts))
    gone = {fault.episode for fault in lost}
    unwanted = left_out(starts, plans)
    missing = [f"{pair[0]} sample {pair[1]}" for pair in ledger.missing(plans) if pair not in unwanted]
    waited = [name for name in missing if name not in gone]
    every = (*faults, *lost)
    unfinished = bool(waited or lost or ledger.to_redo)
    return Soundness(
        store=store.uri,
        run_id=run.run_id if run else None,
        sound=not every,
        state="unfinished" if unfinished else "complete" if plans else "unknown",
        files=files,
        rows=ledger.rows,
        episodes=ledger.episodes,
        planned=len(frozenset[tuple[str, int]]().union(*plans.values())) if plans else None,
        missing=tuple(waited),
        to_redo=ledger.to_redo,
        superseded=ledger.superseded,
        repeated=ledger.repeated,
        faults=every,
        notes=(
            *_notes(store, run, ledger, plans, len({task_id for task_id, _ in unwanted})),
            *ledger.described_otherwise(),
            *odd_moments(ledger.in_order(), run, starts, datetime.now(UTC)),
        ),
    )


def _notes(store: Store, run: RunInfo | None, ledger: Ledger, plans: dict[str, Pairs], flagged: int) -> Iterator[str]:
    if run is None:
        yield "no run.json: identities are not checked"
    elif rules_of(run).rejudged:
        yield "verdicts were given again: what followed from the first ones is not checked"
    elif not rules_of(run).same_wording:
        yield (
            f"written by another kb_ray ({run.versions.get('kb_ray', 'unknown')}): whether code and feedback follow "
            "from answers and verdicts, and openings from tasks, is not checked"
        )
    elif template_of(rules_of(run)) is None:
        yield "asked with a template of the user's own: whether openings follow from it is not checked"
    if not plans:
        yield f"nothing under {PLANS_PREFIX}: nobody can say which episodes are missing"
    elif more := ledger.unplanned(plans):
        yield f"{more} episodes are in no plan: they are from before plans were kept, or from another store"
    if flagged:
        yield f"{flagged} tasks were left out, since they are flagged"
    if isinstance(store, LocalStore) and (halves := store.leftovers()):
        yield f"{len(halves)} half-written files (.tmp-*) of killed writers: nothing reads them, they may be removed"
