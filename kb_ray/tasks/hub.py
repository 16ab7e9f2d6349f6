"""Loads a split of a public data set through `datasets`, which is imported only when one is wanted.

Knows how such a load fails and what to do instead; not what the rows mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb_ray.errors import ConfigError

_PROBE_TIMEOUT_S = 8.0


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
        raise ConfigError(f"data set {dataset} ({split}) cannot be loaded: {reason[:200]}; {instead}") from error
    return rows, list(rows.column_names)


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
