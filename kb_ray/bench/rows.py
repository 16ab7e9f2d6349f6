"""Rows of a file of many: read as they are wanted, so that a file may be larger than memory, answered as they finish.

Does not know what a row means.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from itertools import islice
from typing import Any

from kb_ray.errors import ConfigError


def opened(name: str) -> Any:
    """An open file of text; standard input for `-`, which is left open."""
    if name == "-":
        return nullcontext(sys.stdin)
    try:
        return open(name, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from None


def parsed(text: str, where: str) -> Any:
    """What the JSON of `text` says."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None


def as_finished(
    threads: ThreadPoolExecutor, at_once: int, work: Callable[[Any], Any], items: Iterable[Any]
) -> Iterator[Any]:
    """Results of `work` over `items`, in the order in which they finish; few items are read ahead."""
    waiting, items = set[Future[Any]](), iter(items)
    while True:
        waiting |= {threads.submit(work, item) for item in islice(items, 2 * at_once - len(waiting))}
        if not waiting:
            return
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)
