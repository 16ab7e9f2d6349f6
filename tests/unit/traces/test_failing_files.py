"""A folder's file that the system cannot read is the store's failure, wherever it is read, and no damaged trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kb_ray.errors import StoreError
from kb_ray.traces.layout import list_parts
from kb_ray.traces.reading import survey
from kb_ray.traces.resume import read_columns
from kb_ray.traces.skim import Skimmer
from kb_ray.traces.store import LocalStore, Store, StoreUnavailable
from kb_ray.verifying.checking import check
from tests import synthetic_traces

UNREADABLE = Path("/proc/self/mem")
"""Opened by everybody, and its beginning, where nothing is mapped, read by nobody: an error of the device."""
READERS: dict[str, Callable[[Store], object]] = {
    "survey": survey,
    "survey without hashes": lambda store: survey(store, verify=False),
    "survey of what can be read": lambda store: survey(store, skip_corrupt=True),
    "a start": lambda store: list(read_columns(store, list_parts(store), ["task_id"])),
    "status": lambda store: Skimmer(store).look(),
    "verify": check,
}


@pytest.fixture
def failing(tmp_path: Path) -> LocalStore:
    """A store of which one part cannot be read."""
    store = LocalStore(str(tmp_path))
    synthetic_traces.write_parts(store, synthetic_traces.episodes(24), per_part=8)
    part = tmp_path / list_parts(store)[1]
    part.unlink()
    part.symlink_to(UNREADABLE)
    return store


@pytest.mark.parametrize("reader", READERS)
def test_what_cannot_be_read_is_no_damage(failing: LocalStore, reader: str) -> None:
    with pytest.raises(StoreError, match=str(failing.uri)) as caught:
        READERS[reader](failing)
    assert "damaged" not in str(caught.value)
    assert str(caught.value).endswith("; if it stays so, move that file away")
    assert "\n" not in str(caught.value)


def test_an_error_of_the_device_may_pass(failing: LocalStore) -> None:
    key = list_parts(failing)[1]
    with failing.open(key) as file, pytest.raises(StoreUnavailable, match=key):
        file.read(100)
