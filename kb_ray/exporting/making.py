"""From a trace store to a finished export: the view's rows, its files and its card, in a folder that appears whole.

Knows what belongs to which view; how rows are chosen and made stands in the views' own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kb_ray.errors import ConfigError
from kb_ray.exporting import card, files, kernelbench, preference, raw, rl, seed1, sft
from kb_ray.exporting.options import ExportOptions
from kb_ray.exporting.sieve import Sieve
from kb_ray.traces.reading import Survey

DATA_FOLDER = "data"
_PARQUET: dict[str, ModuleType] = {"sft": sft, "rl": rl, "preference": preference, "raw": raw}
Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Made:
    """A finished export."""

    folder: Path
    rows: int
    counts: card.Counts
    account: str
    """What the filters removed, in words."""
    loader: str
    """The Python expression that loads it; empty where it is no data set."""


def make(found: Survey, options: ExportOptions, folder: Path, *, command: str, overwrite: bool = False) -> Made:
    """Writes the view of `found` as `folder`.

    ConfigError, and nothing written, where no row is left (which filter took how many is said) or the folder cannot
    be written; StoreError where the store fails meanwhile.
    """
    folder = folder.absolute()
    sieve, counts = Sieve(options.filters, options.near_duplicates), card.Counts()
    with files.appearing(folder, overwrite=overwrite) as scratch:
        rows, data_files, kind = _write(found, options, sieve, counts, scratch)
        if not rows:
            raise ConfigError(
                f"trace store {found.store.uri}: nothing is left for view {options.view} of {found.episodes} episodes: "
                f"{sieve.account()}"
            )
        told = card.Story(found, options, sieve.account(), command, data_files, _loader(kind, data_files), rows)
        (scratch / "README.md").write_text(card.text(told, counts), encoding="utf-8")
    return Made(folder, rows, counts, sieve.account(), _loader(kind, str(folder / data_files)))


def _write(
    found: Survey, options: ExportOptions, sieve: Sieve, counts: card.Counts, scratch: Path
) -> tuple[int, str, str]:
    """(rows, the files as a pattern, their kind for `load_dataset`)."""
    if options.view in _PARQUET:
        view = _PARQUET[options.view]
        counted = _counted(view.rows(found, options, sieve), counts.add)
        rows = files.write_parquet(counted, view.schema(options), scratch / DATA_FOLDER)
        return rows, f"{DATA_FOLDER}/train-*.parquet", "parquet"
    if options.view == "seed1":
        name = seed1.MULTI_TURN_FILE if seed1.is_multi_turn(found) else seed1.FILE
        return files.write_json(_records(seed1.rows(found, options, sieve), counts), scratch / name), name, "json"
    counted = _counted(kernelbench.rows(found, options, sieve), counts.add)
    return files.write_texts(counted, scratch), "level*/level_*_kernel.py", ""


def _loader(kind: str, data_files: str) -> str:
    return f'datasets.load_dataset("{kind}", data_files={data_files!r}, split="train")' if kind else ""


def _counted(rows: Iterable[dict[str, Any]], add: Callable[[dict[str, Any]], None]) -> Rows:
    for row in rows:
        add(row)
        yield row


def _records(pairs: Iterable[tuple[dict[str, Any], dict[str, Any]]], counts: card.Counts) -> Rows:
    for record, facts in pairs:
        counts.add(facts)
        yield record
