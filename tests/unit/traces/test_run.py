"""A store holds one run: who may join it, and what the refusal says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kb_ray.errors import ConfigError
from kb_ray.traces.run import RunInfo, episode_id, fingerprint, open_run, read_run
from kb_ray.traces.store import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "out"))


def info(run_id: str = "run-1", **identity: Any) -> RunInfo:
    return RunInfo(
        run_id=run_id,
        fingerprint=fingerprint(identity),
        identity=identity,
        config={"output": "somewhere"},
        versions={"kb_ray": "0"},
        created_at="2026-01-02T03:04:05+00:00",
    )


def test_the_first_start_makes_the_run_and_the_next_one_joins_it(store: LocalStore) -> None:
    first = open_run(store, info("run-1", model="m"))
    assert open_run(store, info("run-2", model="m")) == first
    assert read_run(store) == first


def test_other_settings_are_refused_by_name_and_leave_the_run_alone(store: LocalStore) -> None:
    first = open_run(store, info(model="m", sampling={"seed": 1, "top_p": 1.0}))
    with pytest.raises(ConfigError) as caught:
        open_run(store, info(model="m", sampling={"seed": 2, "top_p": 1.0}, turns=4))
    assert "sampling.seed: 1 -> 2" in str(caught.value)
    assert "turns: unset -> 4" in str(caught.value)
    assert "top_p" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert read_run(store) == first


def test_a_run_of_which_there_is_nothing_yet_may_be_removed(store: LocalStore) -> None:
    open_run(store, info(model="m"))
    store.put_if_absent("leases/1-of-1.json", b"{}")
    with pytest.raises(ConfigError, match=r"nothing has come out of it yet, so removing its run\.json"):
        open_run(store, info(model="n"))
    store.put_if_absent("episodes/part-1.parquet", b"x")
    with pytest.raises(ConfigError, match=r"or another --output$"):
        open_run(store, info(model="n"))


def test_a_foreign_run_file_is_refused_in_one_line(store: LocalStore) -> None:
    store.put_if_absent("run.json", b'{"hello": 1}')
    with pytest.raises(ConfigError, match=r"run\.json is damaged .* use another --output") as caught:
        open_run(store, info(model="m"))
    assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_written_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        open_run(LocalStore(str(tmp_path / "file")), info(model="m"))


def test_the_fingerprint_ignores_the_order_of_settings_only() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1, "b": 2}) != fingerprint({"a": 2, "b": 1})


def test_an_episode_id_depends_on_each_of_its_parts() -> None:
    ids = {episode_id(*parts) for parts in [("t", 0, 1, "f"), ("u", 0, 1, "f"), ("t", 1, 1, "f"), ("t", 0, 2, "f")]}
    assert len(ids | {episode_id("t", 0, 1, "g")}) == 5
    assert episode_id("t", 0, 1, "f") == episode_id("t", 0, 1, "f")
