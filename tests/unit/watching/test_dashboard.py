"""Properties of the Grafana dashboard: it can be imported, shows every metric of ours, and asks for nothing that
neither kb_ray nor the installed vLLM and Ray define."""

from __future__ import annotations

import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import pytest

from kb_ray.watching.catalogue import ALL
from tests.scraping import dashboard, metrics_in, panels, queries

DASHBOARD = dashboard()
ASKED = {name for query in queries(DASHBOARD) for name in metrics_in(query)}
GRID = 24
# Of a histogram Ray exports a bucket, a count and a sum; of a counter a total.
SUFFIX = re.compile(r"_(?:bucket|count|sum|total)$")


def source_of(package: str, *folders: str) -> str:
    """All Python text of folders of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed: what it exports is not known")
    root = Path(found.origin).parent
    return "\n".join(p.read_text(encoding="utf-8") for folder in folders for p in sorted((root / folder).glob("*.py")))


def test_every_metric_of_ours_is_shown_and_every_one_shown_is_ours() -> None:
    shown = {name for name in ASKED if name.startswith("ray_kb_ray_")}
    assert shown - {name for metric in ALL for name in metric.exported} == set()
    assert [metric.name for metric in ALL if not shown & set(metric.exported)] == []


def test_what_it_asks_of_vllm_is_defined_there() -> None:
    text = source_of("vllm", "v1/metrics")
    defined = {name.replace(":", "_") for name in re.findall(r'name="(vllm:\w+)"', text)}
    asked = {SUFFIX.sub("", name.removeprefix("ray_")) for name in ASKED if name.startswith("ray_vllm_")}
    assert {"vllm_generation_tokens", "vllm_kv_cache_usage_perc", "vllm_num_requests_waiting"} <= asked
    assert asked - defined == set()


def test_what_it_asks_of_serve_and_of_nodes_is_defined_in_ray() -> None:
    text = source_of("ray", "serve/_private", "dashboard/modules/reporter")
    asked = {name for name in ASKED if not name.startswith(("ray_kb_ray_", "ray_vllm_", "kb_ray_"))}
    assert any(name.startswith("ray_serve_") for name in asked)
    assert any(name.startswith("ray_node_") for name in asked)
    # Serve puts protocols together with names: num_{protocol}_requests.
    patterns = {
        re.sub(r"\{[\w.()]+\}", r"(?:http|grpc)", name) for name in re.findall(r'"((?:serve|node)_[\w{}.()]+)"', text)
    }

    def defined(name: str) -> bool:
        return any(re.fullmatch(f"ray_{pattern}(?:{SUFFIX.pattern})?", name) for pattern in patterns)

    assert {name for name in asked if not defined(name)} == set()


def test_it_can_be_imported_anywhere() -> None:
    assert isinstance(DASHBOARD["schemaVersion"], int)
    assert DASHBOARD["schemaVersion"] >= 39
    assert DASHBOARD["uid"]
    assert "id" not in DASHBOARD, "an id belongs to the Grafana that it came from"
    assert "__inputs" not in DASHBOARD
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for panel in panels(DASHBOARD):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    for query in queries(DASHBOARD):
        assert set(re.findall(r"\$(\w+)", query)) <= {*variables, "__rate_interval"}


def test_panels_have_their_own_place_a_title_and_a_unit() -> None:
    every = DASHBOARD["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    taken: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= GRID
        assert not taken & cells, panel["title"]
        taken |= cells
    for panel in panels(DASHBOARD):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("query", queries(DASHBOARD))
def test_a_query_is_balanced_and_reads_counters_as_rates(query: str) -> None:
    for opening, closing in ("()", "{}", "[]"):
        assert query.count(opening) == query.count(closing)
    assert metrics_in(query)
    for name in metrics_in(query):
        if name.endswith(("_bucket", "_count")):
            assert re.search(rf"(?:rate|increase)\({name}\{{", query), name
        assert not name.endswith("_sum"), "Ray makes it up from the middle of each bucket"


_FEW = re.compile(r"increase\(|by \((?:stop_reason|status|path)")
# What may happen once in a run, and is then to be seen: what failed, and what is split by how it ended.
FEW = {
    name
    for query in queries(DASHBOARD)
    for name in metrics_in(query)
    if name.endswith("_total") and "kb_ray_" in name and _FEW.search(query)
}
_SUM = r"(?:\d+ \* )?sum(?: by \([\w, ]+\))? ?\((?P<over>(?:rate|increase)\()?NAME\{[^}]*\}[^)]*\)+"


def shown(query: str, name: str, values: list[float | None]) -> float:
    """What a query says of one series of a counter over so many looks of Prometheus; 0 where it says nothing of it."""
    asks = re.fullmatch(rf"{_SUM.replace('NAME', name)}(?: > 0| and .* > 0)?", query)
    seen = [value for value in values if value is not None]
    if asks is None or not seen:
        return 0.0
    return sum(after - before for before, after in pairwise(seen)) if asks["over"] else seen[-1]


@pytest.mark.parametrize("name", sorted(FEW))
def test_what_happened_before_prometheus_first_looked_is_shown(name: str) -> None:
    asked = [query for query in queries(DASHBOARD) if name in metrics_in(query)]
    assert max(shown(query, name, [0.0, 3.0, 3.0]) for query in asked) == 3.0
    assert max(shown(query, name, [None, 3.0, 3.0]) for query in asked) == 3.0


def test_lines_are_drawn_of_what_happened_alone() -> None:
    """Every value of a label is exported from the start."""
    split = re.compile(r"sum by \((stop_reason|status|phase)\) \(rate\((ray_\w+)")
    found = [(query, match) for query in queries(DASHBOARD) if (match := split.search(query))]
    assert len(found) == 4
    for query, match in found:
        label, name = match.groups()
        assert re.search(rf" and sum by \({label}\) \({name}\{{[^}}]*\}}\) > 0$", query), query
