"""A run that is killed between checkpoints: every attempt stays in its store, and none stands in for another.

The kill is an error out of the batch's keeping, with all that was not flushed gone; a killed process is tests/run's.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kb_ray.records import Episode
from kb_ray.score.reward import RewardRule, reward
from kb_ray.traces.layout import part_key
from kb_ray.traces.reading import read_episodes, survey
from kb_ray.traces.run import open_run
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import LocalStore
from kb_ray.training import keeping
from kb_ray.training.rl_command import _info
from kb_ray.training.rl_run import Judges, train
from kb_ray.training.rl_settings import GrpoSettings
from kb_ray.verifying.checking import check
from tests.unit.learn import tiny
from tests.unit.learn.test_grpo import TASKS, judge
from tests.unit.training.test_rl_run import grpo, opening

BATCH, EVERY = len(TASKS) * 16, 50
"""Episodes of a batch, and of a part."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


class Killed(Exception):
    """Stands for the end of the process."""


class Sink:
    """Parts of `EVERY` episodes; ends the run after so many."""

    def __init__(self, store: LocalStore, last: int = 10_000) -> None:
        self.waiting: list[Episode] = []
        self.written: list[Episode] = []
        self._store, self._last = store, last

    def add(self, episode: Episode) -> None:
        if len(self.written) + len(self.waiting) == self._last:
            raise Killed
        self.waiting.append(episode)
        if len(self.waiting) == EVERY:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            data = table_bytes(self.waiting)
            assert self._store.put_if_absent(part_key(data), data)
            self.written += self.waiting
            self.waiting = []


async def start(settings: GrpoSettings, sink: Sink) -> None:
    judges = Judges(judge, sink.add, "r", flush=sink.flush)
    await train(settings, TASKS, judges, opening, lambda line: None, "cpu")


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def said(episode: Episode) -> tuple[str, str, str]:
    answer = episode.turns[0].completion
    return episode.episode_id, answer.model, answer.text


def score(episode: Episode) -> float:
    told = reward(episode.turns[0].verdict, RewardRule(scheme="kevin"))
    assert told is not None
    return told


@pytest.fixture
def settings(model: Path, tmp_path: Path) -> GrpoSettings:
    return grpo(model, tmp_path, checkpoint_every=2, steps=6)


@pytest.fixture
def store(settings: GrpoSettings, tmp_path: Path) -> LocalStore:
    found = LocalStore(str(tmp_path))
    open_run(found, _info(settings, "grpo", "r", "cpu"))
    return found


@pytest.mark.parametrize("kills", [(5 * BATCH + 20,), (5 * BATCH + 60, BATCH + 10), (1,)])
async def test_what_was_tried_before_a_kill_stays_beside_what_is_tried_again(
    settings: GrpoSettings, store: LocalStore, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    written: list[Episode] = []
    for last in kills:
        sink = Sink(store, last)
        with pytest.raises(Killed):
            await start(settings, sink)
        written += sink.written
    sink = Sink(store)
    await start(settings, sink)
    found = list(read_episodes(survey(store)))
    assert Counter(map(said, found)) == Counter(map(said, written + sink.written))
    assert not {fault.kind for fault in check(store).faults} & {"repeated", "attempt", "lost", "identity"}
    for line in lines(tmp_path):
        first = int(line["Progress/FirstSample"])
        own = [episode for episode in found if episode.sample in range(first, first + 16)]
        assert len(own) == BATCH
        assert statistics.fmean(map(score, own)) == pytest.approx(line["Reward/Mean"])


async def test_a_run_that_is_not_killed_counts_samples_without_a_gap(
    settings: GrpoSettings, store: LocalStore, tmp_path: Path
) -> None:
    await start(settings, Sink(store))
    assert [line["Progress/FirstSample"] for line in lines(tmp_path)] == [16.0 * n for n in range(6)]
    assert {episode.sample for episode in read_episodes(survey(store))} == set(range(6 * 16))


async def test_traces_and_numbers_are_safe_before_the_checkpoint_after_which_they_are_not_made_again(
    settings: GrpoSettings, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, seen, real = Sink(store), list[tuple[int, int, int]](), keeping.save

    def save(*given: Any) -> Any:
        seen.append((given[3]["batch"], len(lines(tmp_path)), len(sink.written)))
        return real(*given)

    monkeypatch.setattr(keeping, "save", save)
    await start(settings, sink)
    assert seen == [(batch, batch, batch * BATCH) for batch in (2, 4, 6)]
    told = [line["Timing/SaveCheckpoint"] for line in lines(tmp_path)]
    assert [value > 0 for value in told] == [False, True] * 3
