"""The first events of a kind are seen by who asks Prometheus for growth: every counter is exported at 0 before them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from kb_ray.records import StopReason
from kb_ray.watching import catalogue
from kb_ray.watching.ray_meter import RayMeter
from tests.scraping import RAY_LABELS, scrape

Series = tuple[str, frozenset[tuple[str, str]]]
COUNTERS = [metric for metric in catalogue.ALL if metric.kind == "counter"]
EVERY: set[Series] = {
    (metric.exported[0], frozenset(labels.items())) for metric in COUNTERS for labels in metric.series()
}
END_S = 300.0


def growth(values: list[float]) -> float:
    """As `increase` takes it from one series: from sample to sample, nothing for the first one."""
    return sum(after - before for before, after in pairwise(values))


def test_the_first_events_of_a_kind_are_growth(ray_cluster: str) -> None:
    import ray

    ours = ray.get_runtime_context().get_worker_id()
    values: dict[Series, list[float]] = defaultdict(list)

    def look() -> None:
        for sample in scrape():
            own = frozenset((name, value) for name, value in sample.labels.items() if name not in RAY_LABELS)
            if sample.labels.get("WorkerId") == ours and (sample.name, own) in EVERY:
                values[sample.name, own].append(sample.value)

    def until(there: Callable[[], bool]) -> None:
        end = time.monotonic() + END_S
        look()
        while not there():
            assert time.monotonic() < end, EVERY - values.keys()
            time.sleep(1)
            look()

    meter = RayMeter()
    until(lambda: values.keys() == EVERY)
    reason = StopReason.INFRA_ERROR.value
    meter.add(catalogue.INFRA_RETRIES, 3)
    meter.add(catalogue.EPISODES, 1, stop_reason=reason)
    retries = (catalogue.INFRA_RETRIES.exported[0], frozenset[tuple[str, str]]())
    episodes = (catalogue.EPISODES.exported[0], frozenset({("stop_reason", reason)}))
    until(lambda: growth(values[retries]) >= 3 and growth(values[episodes]) >= 1)
    assert (growth(values[retries]), growth(values[episodes])) == (3, 1)
