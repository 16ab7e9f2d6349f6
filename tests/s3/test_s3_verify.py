"""The check of a store on the server: the same findings as on a folder, alone and with several processes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kb_ray.traces.layout import list_parts
from kb_ray.traces.store import Store, open_store
from kb_ray.verifying.checking import check
from tests.fixtures_s3 import S3Server
from tests.unit.verifying.sound_stores import change_episode, sound_store


@pytest.fixture
async def store(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    local, made = await sound_store(tmp_path), open_store(f"s3://{s3_server.bucket}/{uuid.uuid4().hex}")
    for key in local.list(""):
        data = local.get(key)
        assert data is not None
        made.put_if_absent(key, data)
    return made


def test_a_sound_store_is_sound_and_a_planted_fault_is_found(store: Store) -> None:
    found = check(store)
    assert (found.faults, found.state, found.episodes) == ((), "complete", 6)
    key = change_episode(store, lambda episode: episode.model_copy(update={"best_turn": 0}))
    cut = list_parts(store)[0]
    store.replace(cut, (store.get(cut) or b"")[:-9])
    found = check(store, processes=2)
    told = {(str(fault.kind), fault.part) for fault in found.faults if fault.kind != "lost"}
    assert told == {("turns", key), ("file", cut)}
