"""What the HTTP service exports: the pool as a run shows it, under the same names, and only labels that are listed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import httpx
import pytest

from kb_ray.bench.access import Access
from kb_ray.bench.exposition import WANTED, Exposition
from kb_ray.bench.service import Service, make_app
from kb_ray.records import Verdict
from kb_ray.tally import Tally
from kb_ray.watching.catalogue import ALL, OTHER
from kb_ray.watching.sampling import Sampler
from tests import synthetic_traces
from tests.scraping import Sample, dashboard, metrics_in, queries, samples
from tests.unit.bench.http_pieces import StaticVerifier, arguments
from tests.unit.watching.metering import Remembering

RAYS_PREFIX = "ray_"


@dataclass
class Pool:
    """Counts of a pool, and of a sink, since a run's sampler wants both."""

    waiting: int = 3
    running: int = 9
    capacity: int = 12
    workers: int = 5
    ready: int = 2
    leaving: int = 1
    infra_retries: int = 4
    quarantined: tuple[str, ...] = ("kb-bench-r-2: wrong results",)
    parts: int = 0
    bytes: int = 0

    @property
    def stats(self) -> Pool:
        return self


def exported(pool: Pool, *verdicts: Verdict) -> list[Sample]:
    """What is read of a service with that pool, after these verdicts."""
    exposition = Exposition({"waiting": lambda: 0.0}, lambda: pool)
    for verdict in verdicts:
        exposition.verdict(verdict, 1.0)
    return samples(exposition.text().decode())


def value(found: list[Sample], name: str, **labels: str) -> float:
    (one,) = [sample.value for sample in found if (sample.name, sample.labels) == (name, labels)]
    return one


@pytest.mark.parametrize(
    ("pool", "used", "not_ready"),
    [
        pytest.param(Pool(), 0.75, 3, id="busy"),
        pytest.param(Pool(running=40), 1.0, 3, id="leaving ones too"),
        pytest.param(Pool(ready=0, capacity=0), 0.0, 5, id="none ready"),
    ],
)
def test_of_one_pool_a_service_and_a_run_say_the_same_under_the_same_names(
    pool: Pool, used: float, not_ready: int
) -> None:
    meter = Remembering()
    Sampler(meter, Tally(total=1, earlier=0, started=0.0), pool, pool).sample()
    names = {metric.name: metric.exported[0].removeprefix(RAYS_PREFIX) for metric in ALL}
    run = {(names[name], labels): amount for (name, labels), amount in {**meter.gauges, **meter.counters}.items()}
    service = {(s.name, tuple(s.labels.items())): s.value for s in exported(pool) if "_http_" not in s.name}
    assert service.pop((WANTED.name, ())) == 4, "one of the five leaves"
    assert {series: run[series] for series in service} == service
    assert service["kb_ray_bench_utilisation", ()] == used
    assert service["kb_ray_bench_workers", (("state", "not_ready"),)] == not_ready
    assert {name for name, _ in service} == {
        "kb_ray_bench_workers", "kb_ray_verdicts_in_flight", "kb_ray_bench_utilisation", "kb_ray_quarantined_gpus",
        "kb_ray_infra_retries_total",
    }  # fmt: skip


def test_each_reading_asks_the_pool_anew() -> None:
    pool = Pool()
    exposition = Exposition({}, lambda: pool)
    exposition.text()
    pool.ready, pool.leaving = 5, 3
    after = samples(exposition.text().decode())
    assert value(after, "kb_ray_bench_workers", state="ready") == 5
    assert value(after, "kb_ray_bench_wanted_workers") == 2


def test_seconds_of_verdicts_are_told_by_phase_as_those_of_a_run_are() -> None:
    turn = next(synthetic_traces.episodes(1)).turns[0]
    spent = {"check": 1.0, "timing": 0.5, "../../etc/passwd": 2.0, "total": 9.0}
    found = exported(Pool(), *[turn.verdict.model_copy(update={"seconds": spent})] * 2)
    told = {s.labels["phase"]: s.value for s in found if s.name == "kb_ray_phase_seconds_total"}
    assert told == {"check": 2.0, "timing": 1.0, OTHER: 4.0}


def test_whatever_verdicts_hold_the_labels_are_listed_ones() -> None:
    listed: dict[str, set[str]] = defaultdict(set)
    for metric in ALL:
        for label, values in metric.labels.items():
            listed[label] |= {*values, OTHER}
    found = [synthetic_traces.hostile_episode(), *synthetic_traces.episodes(100)]
    labels = {
        pair
        for sample in exported(Pool(), *(turn.verdict for episode in found for turn in episode.turns))
        for pair in sample.labels.items()
    }
    assert {label for label, _ in labels} == {"status", "phase", "state", "le"}
    for label, seen in labels:
        assert label == "le" or seen in listed[label]


async def test_every_query_about_the_service_names_what_it_exports_and_shows_all_of_it() -> None:
    service = Service(StaticVerifier(), "cpu")
    transport = httpx.ASGITransport(make_app(service, Access({})), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
        await http.post("/evaluate", json=arguments())
        # Only a candidate that runs has phases, which nothing here does.
        service.exposition.verdict(next(synthetic_traces.episodes(1)).turns[0].verdict, 1.0)
        told = {sample.name for sample in samples((await http.get("/metrics")).text)}
    asked = {name for query in queries(dashboard()) for name in metrics_in(query) if name.startswith("kb_ray_")}
    assert asked - told == set()
    shown = {name.removesuffix("_bucket") for name in asked}
    parts = ("_created", "_bucket", "_count", "_sum")
    assert {name for name in told if not name.endswith(parts)} - shown == set()
    assert "kb_ray_bench_http_verdict_seconds" in shown
