"""Properties of the metrics: bounded labels, counts that are those of the episodes, nothing told twice."""

from __future__ import annotations

import ast
import asyncio
import math
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import kb_ray.bench.child
from kb_ray.model.completer import Request
from kb_ray.records import Completion, Episode, Verdict
from kb_ray.tally import Tally
from kb_ray.watching import catalogue, sampling
from kb_ray.watching.catalogue import ALL, OTHER
from kb_ray.watching.meter import judged
from kb_ray.watching.sampling import Sampler
from tests import synthetic_traces
from tests.unit.drive_stand_ins import GOOD, Bench, StandInPool, WatchedModel, script
from tests.unit.watching.metering import Remembering


def watched(*found: Episode) -> tuple[Remembering, Tally]:
    """What a meter is told of these episodes by the driver's counters."""
    meter = Remembering()
    tally = Tally(total=len(found), earlier=0, started=time.monotonic(), meter=meter)
    for one in found:
        for turn in one.turns:
            tally.completed(turn.completion)
            tally.turned(turn)
        tally.ended(one)
    return meter, tally


def test_every_metric_says_what_it_is() -> None:
    assert len({metric.name for metric in ALL}) == len(ALL)
    for metric in ALL:
        assert metric.name.startswith("kb_ray_")
        assert not metric.name.endswith("_total"), "Ray adds that itself"
        assert metric.unit
        assert metric.description.endswith(".")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(set(metric.buckets))
    assert all(isinstance(metric, catalogue.Metric) for metric in ALL)
    declared = {value.name for value in vars(catalogue).values() if isinstance(value, catalogue.Metric)}
    assert declared == {metric.name for metric in ALL}


def test_labels_can_take_few_values_and_none_is_an_identity() -> None:
    series = sum(math.prod(len(values) + 1 for values in metric.labels.values()) for metric in ALL)
    assert series < 120
    names = {label for metric in ALL for label in metric.labels}
    assert {name for name in names if name.endswith("_id") or name in ("task", "run", "host", "model")} == set()


def test_whatever_an_episode_holds_its_labels_are_listed_ones() -> None:
    found = [synthetic_traces.hostile_episode(), *synthetic_traces.episodes(200)]
    meter, _ = watched(*found)
    by_name = {metric.name: metric for metric in ALL}
    for name, labels in meter.seen():
        for label, value in labels:
            assert value in (*by_name[name].labels[label], OTHER)


def test_a_phase_that_nobody_knows_counts_as_other() -> None:
    turn = next(synthetic_traces.episodes(1)).turns[0]
    unknown = turn.verdict.model_copy(update={"seconds": {"../../etc/passwd": 2.0, "check": 1.0, "total": 9.0}})
    meter = Remembering()
    judged(meter, turn.model_copy(update={"verdict": unknown}))
    assert meter.total(catalogue.PHASE_SECONDS, phase=OTHER) == 2.0
    assert meter.total(catalogue.PHASE_SECONDS, phase="check") == 1.0


def test_the_phases_of_the_verifier_are_all_listed() -> None:
    found = set()
    for path in Path(str(kb_ray.bench.child.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                name = node.args[0]
                if node.func.attr in ("phase", "spent") and isinstance(name, ast.Constant):
                    found.add(name.value)
    assert {"load", "check", "timing", "queue_timing"} <= found
    assert found - set(catalogue.PHASES) == set()


def test_counts_are_those_of_the_episodes() -> None:
    found = list(synthetic_traces.episodes(300))
    meter, tally = watched(*found)
    turns = [turn for episode in found for turn in episode.turns]
    for status, count in Counter(turn.verdict.status.value for turn in turns).items():
        assert meter.total(catalogue.VERDICTS, status=status) == count
    for reason, count in tally.stop_reasons.items():
        assert meter.total(catalogue.EPISODES, stop_reason=reason) == count
    assert meter.total(catalogue.TURNS) == len(turns)
    assert meter.total(catalogue.SOLVED) == sum(any(t.verdict.correct for t in e.turns) for e in found)
    correct = [turn.verdict for turn in turns if turn.verdict.correct]
    assert meter.total(catalogue.CORRECT, trusted="yes") == sum(verdict.trusted for verdict in correct) > 0
    usages = [turn.completion.usage for turn in turns]
    assert meter.total(catalogue.TOKENS, kind="prompt") == sum(usage.prompt_tokens for usage in usages)
    assert meter.total(catalogue.TOKENS, kind="completion") == sum(usage.completion_tokens for usage in usages)
    assert meter.histograms["kb_ray_speedup", ()] == [verdict.speedup for verdict in correct]


def test_a_speedup_that_is_not_trusted_is_not_among_the_speedups() -> None:
    turns = [turn for episode in synthetic_traces.episodes(50) for turn in episode.turns if turn.verdict.speedup]
    doubted: Verdict = turns[0].verdict.model_copy(update={"trusted": False})
    meter = Remembering()
    judged(meter, turns[0].model_copy(update={"verdict": doubted}))
    assert meter.histograms["kb_ray_speedup", ()] == []
    assert meter.total(catalogue.CORRECT, trusted="no") == 1


@dataclass
class Stats:
    """As a pool and a sink count."""

    waiting: int = 3
    running: int = 4
    capacity: int = 8
    workers: int = 3
    ready: int = 2
    infra_retries: int = 1
    quarantined: tuple[str, ...] = ("kb-bench-r-2: wrong results",)
    parts: int = 2
    bytes: int = 1000

    @property
    def stats(self) -> Stats:
        return self


def test_a_sample_shows_queues_workers_and_what_grew_since_the_last_one() -> None:
    meter = Remembering()
    tally = Tally(total=10, earlier=2, started=0.0)
    tally.waiting_on_model, tally.generating = 7, 5
    counts = Stats()
    sampler = Sampler(meter, tally, counts, counts)
    sampler.sample()
    sampler.sample()
    counts.infra_retries, counts.parts, counts.bytes, counts.capacity, counts.running = 4, 3, 1800, 0, 0
    sampler.sample()
    assert meter.total(catalogue.INFRA_RETRIES) == 4
    assert meter.total(catalogue.PARTS) == 3
    assert meter.total(catalogue.BYTES) == 1800
    assert meter.level(catalogue.WAITING, queue="model") == 2
    assert meter.level(catalogue.WAITING, queue="bench") == 3
    assert meter.level(catalogue.GENERATING) == 5
    assert meter.level(catalogue.WORKERS, state="not_ready") == 1
    assert meter.level(catalogue.QUARANTINED) == 1
    assert meter.level(catalogue.PLANNED, state="open") == 8
    assert meter.level(catalogue.UTILISATION) == 0, "no worker is ready: nothing is used"


async def test_samples_come_while_it_is_going_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_EVERY_S", 0.01)
    counts, meter = Stats(), Remembering()
    sampler = Sampler(meter, Tally(total=1, earlier=0, started=0.0), counts, counts)
    async with sampler.going():
        await asyncio.sleep(0.05)
        counts.parts = 5
        await asyncio.sleep(0.05)
    assert meter.total(catalogue.PARTS) == 5
    counts.parts = 6
    await asyncio.sleep(0.05)
    assert meter.total(catalogue.PARTS) == 5


async def test_requests_with_the_model_are_told_from_those_that_wait_for_a_place(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Looking(WatchedModel):
        async def complete(self, request: Request) -> Completion:
            seen.append((bench.tally.generating, bench.tally.waiting_on_model))
            return await super().complete(request)

    bench = Bench(tmp_path, Looking(script(tmp_path, GOOD), delay_s=0.02), StandInPool(), batch_size=2)
    assert (await bench.run(6)).kind == "done"
    assert max(generating for generating, _ in seen) == 2
    assert all(generating <= waiting for generating, waiting in seen)
    assert any(generating < waiting for generating, waiting in seen), "nobody waited"
    assert (bench.tally.generating, bench.tally.waiting_on_model) == (0, 0)
