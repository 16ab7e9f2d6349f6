"""Files of other formats in a folder of results: which of them we wrote, of which metrics.

What another project wrote there is hours of a GPU and is not overwritten; what an earlier evaluation left there is not
read as this one's. Knows names and hashes, no format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kb_ray.errors import ConfigError
from kb_ray.records import Record

LEDGER = ".formats.json"
_FILES = {
    "tritonrl": ("tritonrl.json",),
    "kernelbench": tuple(
        f"kernelbench/level*/{name}.json" for name in ("eval_results", "pass_at_k_results", "baseline")
    ),
}


class Ledger(Record):
    """Content of LEDGER."""

    metrics: str = ""
    """Hash of the metrics that the files are of."""
    files: dict[str, str] = Field(default_factory=dict)
    """Hash by path in the folder."""


def check(folder: Path, formats: Collection[str]) -> None:
    """ConfigError where a file of these formats is there that we did not write: it would be overwritten."""
    ours = _read(folder).files
    for pattern in (pattern for name in formats for pattern in _FILES[name]):
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and ours.get(path.relative_to(folder).as_posix()) != _hash(path.read_bytes()):
                raise ConfigError(
                    f"--results: {path} was not written here, or was changed since: move it away, or name another "
                    "--results"
                )


def clear(folder: Path, metrics: str) -> list[Path]:
    """Removes what an evaluation with other metrics left, and returns it. Files that were changed since stay."""
    ledger = _read(folder)
    if ledger.metrics == _hash(metrics.encode()):
        return []
    stale = [folder / name for name in ledger.files]
    removed = [path for path in stale if path.is_file() and _hash(path.read_bytes()) == _kept(ledger, folder, path)]
    try:
        for path in removed:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"--results: {error.filename} cannot be removed: {error.strerror or error}") from error
    return removed


def enter(folder: Path, metrics: str, files: Mapping[str, Any]) -> None:
    """Before they are written: these JSON files, by path in the folder, are ours. OSError where that cannot be kept."""
    if not files:
        return
    known, mark = _read(folder), _hash(metrics.encode())
    held = {name: _hash(text_of(content).encode()) for name, content in files.items()}
    same = known.files if known.metrics == mark else {}
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(metrics=mark, files=same | held)
    (folder / LEDGER).write_text(ledger.model_dump_json(indent=1), encoding="utf-8")


def text_of(content: Any) -> str:
    """A JSON file's text."""
    return json.dumps(content, indent=2) + "\n"


def _kept(ledger: Ledger, folder: Path, path: Path) -> str:
    return ledger.files[path.relative_to(folder).as_posix()]


def _read(folder: Path) -> Ledger:
    """Empty where nothing can be read: then nothing there is known to be ours."""
    try:
        return Ledger.model_validate_json((folder / LEDGER).read_bytes())
    except (OSError, ValidationError):
        return Ledger()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
