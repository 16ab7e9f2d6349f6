"""Loads a split of a public data set through `datasets`, which is imported only when one is wanted.

Knows how such a load fails and what to do instead; not what the rows mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb_ray.errors import ConfigError

_PROBE_TIMEOUT_S = 8.0
_BATCH = 256
_TOKEN = "set HF_TOKEN to a token of yours that may read it, if there is one; "


def load_split(dataset: str, split: str, instead: str) -> tuple[Any, list[str]]:
    """(a `datasets.Dataset`, its column names) of a split, from the local cache of `datasets` or from the hub.

    Raises ConfigError in one line where it cannot be had; `instead` tells how to use a local copy.
    """
    from datasets import load_dataset

    try:
        if not _at_hand(dataset):
            _probe(dataset)
        rows = load_dataset(dataset, split=split)
    # Anything can come out of here: errors of the hub's client, httpx, fsspec and pyarrow.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        advice = (_TOKEN if _refused(error) else "") + instead
        raise ConfigError(f"data set {dataset} ({split}) cannot be loaded: {reason[:200]}; {advice}") from error
    return rows, list(rows.column_names)


class SplitRows:
    """Rows of a data set by number. Read on in order they come by batches, which takes a tenth of the time."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._first, self._held = 0, list[dict[str, Any]]()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        behind = self._first + len(self._held)
        if not self._first <= index < behind:
            # A draw reads here and there: a row of it costs no batch.
            batch = self._rows[index : index + (_BATCH if index == behind else 1)]
            self._first = index
            self._held = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return self._held[index - self._first]


def _refused(error: Exception) -> bool:
    """Whether the hub answered that this caller may not read it, or that for this caller it does not exist."""
    return getattr(getattr(error, "response", None), "status_code", None) in (401, 403, 404)


def _at_hand(dataset: str) -> bool:
    from datasets import config
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = dataset.partition("/")
    cached = Path(config.HF_DATASETS_CACHE) / f"{owner}___{camelcase_to_snakecase(name)}"
    return Path(dataset).is_dir() or cached.is_dir()


def _probe(dataset: str) -> None:
    """Asks the hub once: `load_dataset` itself tries for half a minute before it says that there is none."""
    from huggingface_hub import HfApi

    HfApi().dataset_info(dataset, timeout=_PROBE_TIMEOUT_S)
