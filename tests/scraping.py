"""What Ray exports for Prometheus, fetched over HTTP and read, and what a dashboard asks for. Knows no test."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "deployments" / "grafana.json"
RAY_LABELS = frozenset(
    {"Component", "NodeAddress", "SessionName", "Version", "WorkerId", "le", "otel_scope_name", "otel_scope_version"}
    | {"otel_scope_schema_url"}
)
"""Labels that Ray itself puts on whatever a process records."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_METRIC = re.compile(r"\b(?:ray|autoscaler|kb_ray)_\w+")


@dataclass(frozen=True)
class Sample:
    """One line of an export."""

    name: str
    labels: dict[str, str]
    value: float


def scrape() -> list[Sample]:
    """All samples that the nodes of the connected cluster export now."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    return fetch(f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in alive)


def discovered(temp_folder: Path) -> list[str]:
    """host:port of every node, from the file that the head of a cluster writes for Prometheus."""
    groups = json.loads((temp_folder / "prom_metrics_service_discovery.json").read_text())
    return [target for group in groups for target in group["targets"]]


def fetch(targets: Iterable[str]) -> list[Sample]:
    """All samples that these export (host:port), without those that are not up: Prometheus does the same."""
    found: list[Sample] = []
    for target in targets:
        with suppress(OSError), urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
            found += samples(answer.read().decode())
    return found


def samples(text: str) -> list[Sample]:
    """The samples in an export in Prometheus' text format."""
    found = []
    for line in text.splitlines():
        if match := _SAMPLE.match(line):
            found.append(Sample(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])))
    return found


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Panels that show something, those inside rows included."""
    for panel in dashboard["panels"]:
        yield from panel.get("panels", ())
        if panel["type"] != "row":
            yield panel


def queries(dashboard: dict[str, Any]) -> list[str]:
    """Every query of a dashboard: its panels' and its variables'."""
    asked = [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked.append(variable["query"]["query"])
    return asked


def metrics_in(query: str) -> set[str]:
    """Names of the metrics that a query reads."""
    return set(_METRIC.findall(query))


def dashboard() -> dict[str, Any]:
    """The project's own."""
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return loaded
