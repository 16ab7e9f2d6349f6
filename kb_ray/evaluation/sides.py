"""The two sides of a comparison: which store each is, or will be kept in.

Looks at paths, and on S3 for checkpoints; reads no store and runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kb_ray import local_checkpoints
from kb_ray.errors import ConfigError
from kb_ray.evaluation.answering import is_store
from kb_ray.traces.store import local_path


def sides_of(names: Sequence[str], output: str) -> dict[str, str]:
    """Side as named -> its store: itself, or for a checkpoint a folder of `output` that is called as it is.

    ConfigError where both are one, or a path begins with the home folder of a user that is none.
    """
    first, second = names
    if _same(first) == _same(second):
        raise ConfigError(f"--compare: {first} and {second} are one and the same, name two")
    folders = {name: _path(name) for name in names if not is_store(name)}
    called = dict(zip(folders, _shortest(list(folders.values())), strict=True))
    sides = {name: f"{output.rstrip('/')}/{called[name]}" if name in called else name for name in names}
    if _kept(sides[first]) == _kept(sides[second]):
        raise ConfigError(
            f"--compare: {first} and {second} would both be kept in {sides[first]}: name another --output"
        )
    return sides


def results_of(uri: str, results: str | None) -> str | None:
    """Where a checkpoint's own metrics go: None for its store's folder, where that is one."""
    return str(Path(results or "evaluation") / uri.rpartition("/")[2]) if "://" in uri else None


def _same(name: str) -> str:
    """One text for all ways to name a store or a checkpoint."""
    return _kept(name) if is_store(name) else local_checkpoints.place(name)


def _kept(store: str) -> str:
    """One text for all ways to name a store."""
    return store.rstrip("/") if "://" in store else str(local_path(store).resolve())


def _path(name: str) -> Path:
    """A checkpoint's path, of one on S3 with bucket and scheme as its first folders."""
    return Path("/", *name.split("/")) if "://" in name else local_path(name).resolve()


def _shortest(folders: Sequence[Path]) -> list[str]:
    """As much of the end of each path as tells them apart, in one word: `final`, or `step-A-adapter`."""
    found: list[str] = []
    for length in range(1, max((len(folder.parts) for folder in folders), default=0) + 1):
        found = ["-".join(folder.parts[1:][-length:]) for folder in folders]
        if len(set(found)) == len(found):
            break
    return found
