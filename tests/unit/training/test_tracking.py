"""Numbers are written once each, also where a run was killed between a line and its checkpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.traces.store import LocalStore, StoreUnavailable
from kb_ray.training.tracking import NAME, Tracker, board_folder


class Away(LocalStore):
    """A store that can be away."""

    away = False

    def replace(self, key: str, data: bytes) -> None:
        if self.away:
            raise StoreUnavailable("away")
        super().replace(key, data)


def lines(store: LocalStore) -> list[dict[str, float]]:
    return [json.loads(line) for line in (store.get(NAME) or b"").decode().splitlines()]


def test_every_step_is_a_line_and_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    tracker = Tracker(store, None, first=0)
    tracker.log(0, {"Train/loss": 1.5, "Train/kl": float("nan")}, {})
    tracker.log(1, {"Train/loss": 1.0}, {})
    assert lines(store) == [{"step": 0, "Train/loss": 1.5}, {"step": 1, "Train/loss": 1.0}]


def test_what_is_known_later_is_added_to_the_line_of_its_step(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    tracker = Tracker(store, None, first=0)
    for step in range(2):
        tracker.log(step, {"a": float(step)}, {})
        tracker.add(step, {"b": 0.5 + step, "c": float("inf")})
    assert lines(store) == [{"step": 0, "a": 0.0, "b": 0.5}, {"step": 1, "a": 1.0, "b": 1.5}]


def test_a_step_whose_line_could_not_be_written_is_written_once(tmp_path: Path) -> None:
    store = Away(str(tmp_path))
    tracker = Tracker(store, None, first=0)
    tracker.log(0, {"a": 0.0}, {})
    store.away = True
    with pytest.raises(StoreUnavailable):
        tracker.log(1, {"a": 1.0}, {})
    store.away = False
    tracker.log(1, {"a": 1.0}, {})
    assert lines(store) == [{"step": 0, "a": 0.0}, {"step": 1, "a": 1.0}]


def test_a_run_that_goes_on_drops_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    first = Tracker(store, None, first=0)
    for step in range(4):
        first.log(step, {"a": float(step)}, {})
    store.replace(NAME, (store.get(NAME) or b"") + b'{"step": 4, "a"')
    again = Tracker(store, None, first=2)
    again.log(2, {"a": 20.0}, {})
    assert lines(store) == [{"step": 0, "a": 0.0}, {"step": 1, "a": 1.0}, {"step": 2, "a": 20.0}]


def test_tensorboard_shows_the_same_numbers_and_distributions(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    store = LocalStore(str(tmp_path / "run"))
    tracker = Tracker(store, tmp_path / "board", first=0)
    tracker.log(0, {"Reward/Mean": 0.25}, {"Distributions/Rewards": [0.0, 0.5]})
    tracker.log(1, {"Reward/Mean": 0.5}, {})
    tracker.close()
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [(event.step, event.value) for event in board.Scalars("Reward/Mean")] == [(0, 0.25), (1, 0.5)]
    assert board.Tags()["histograms"] == ["Distributions/Rewards"]


def test_where_tensorboard_writes_and_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert board_folder(True, str(tmp_path)) == tmp_path / "tensorboard"
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert board_folder(False, str(tmp_path)) is None
    assert board_folder(True, "s3://bucket/run") is None
    with pytest.raises(
        ConfigError, match=r"tensorboardX.*pip install 'kb-ray\[tensorboard\]'.*--no-tensorboard-enabled"
    ):
        board_folder(True, str(tmp_path))
