"""The live page of a store with damage: it says what is wrong, and follows the store once that is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kb_ray.report import ReportOptions, live_page
from kb_ray.reporting.live import LivePage
from kb_ray.traces.layout import part_key
from kb_ray.traces.schema import SCHEMA, encode, table_of
from kb_ray.traces.store import LocalStore
from tests.unit.traces.examples import make_episode


def bored() -> pa.Table:
    rows = table_of([make_episode("bad")]).to_pylist()
    rows[0]["stop_reason"] = "bored"
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def keys_alone() -> pa.Table:
    return table_of([make_episode("bad")]).select(["episode_id", "task_id", "sample", "attempt"])


def numbered() -> pa.Table:
    table = table_of([make_episode("bad")])
    return table.set_column(table.schema.get_field_index("turns"), "turns", pa.array([1]))


@pytest.mark.parametrize("damaged", [bored, keys_alone, numbered])
def test_it_names_the_file_and_leaves_it_out_only_when_told(
    tmp_path: Path, damaged: Callable[[], pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb_ray.reporting.live._MARK_AGE_S", 0.0)
    store = LocalStore(str(tmp_path))
    bad, good = encode(damaged()), encode(table_of([make_episode("good")]))
    key = part_key(bad)
    store.put_if_absent(key, bad)
    store.put_if_absent(part_key(good), good)
    strict, lenient = (
        LivePage(
            store, lambda mark, skip=skip: live_page(store, mark, ReportOptions(store=store.uri, skip_corrupt=skip))
        )
        for skip in (False, True)
    )
    waiting = strict.page()
    assert 'http-equiv="refresh"' in waiting
    assert key in waiting
    assert 'http-equiv="refresh"' not in lenient.page()
    store.delete(key)
    assert 'http-equiv="refresh"' not in strict.page()
