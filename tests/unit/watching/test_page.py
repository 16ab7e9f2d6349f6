"""The page about watching says what is exported, logged and concluded: each table is held against the code."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args

import httpx
import yaml
from ray._private.ray_constants import PROMETHEUS_SERVICE_DISCOVERY_FILE

from kb_ray.bench.access import Access
from kb_ray.bench.service import Service, make_app
from kb_ray.serve_file import find, read
from kb_ray.watching import presence, standing
from kb_ray.watching.catalogue import ALL
from tests.unit.bench.http_pieces import StaticVerifier
from tests.unit.test_docs import ROOT, SPAN, blocks, page, tables

PAGE = page(ROOT / "docs" / "watching.md")


def table(column: str) -> list[dict[str, str]]:
    return next(rows for rows in tables(PAGE) if column in rows[0])


def test_the_table_of_metrics_is_the_catalogue() -> None:
    told = {SPAN.findall(row["Metric"])[0]: (row["Kind"], row["Labels"]) for row in table("Metric")}
    assert list(told) == [metric.name for metric in ALL]
    for metric in ALL:
        kind, labels = told[metric.name]
        assert kind == metric.kind
        assert SPAN.findall(labels) == list(metric.labels)
        listed = labels.partition(": ")[2]
        assert not listed or tuple(listed.split(", ")) == next(iter(metric.labels.values()))


def test_every_state_is_explained_with_the_limit_in_force() -> None:
    assert [row["State"] for row in table("State")] == list(get_args(standing.State))
    limit = standing._MISSED * presence.TELL_EVERY_S + standing._SLACK_S
    assert f"within the last {limit:.0f} seconds" in table("State")[0]["Meaning"]


def test_every_event_of_the_log_is_in_the_table() -> None:
    said = set()
    for path in (ROOT / "kb_ray").rglob("*.py"):
        if path.name == "logs.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and called in ("logs.say", "logs.warn", "logs.tell"):
                assert isinstance(node.args[1], ast.Constant), ast.unparse(node)
                said.add(node.args[1].value)
    assert {"plan", "turn", "episode", "summary"} <= said
    assert {event for row in table("Event") for event in SPAN.findall(row["Event"])} == said


def service(access: Access) -> httpx.AsyncClient:
    """The service over HTTP, asked from another machine."""
    app = make_app(Service(StaticVerifier(), "cpu"), access)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, client=("10.0.0.9", 1)), base_url="http://127.0.0.1:8100"
    )


def scrape_configs() -> dict[str, Any]:
    """What the page has Prometheus scrape, by the job's name."""
    (found,) = [yaml.safe_load(text) for label, text in blocks(PAGE) if label == "yaml"]
    return {job["job_name"]: job for job in found["scrape_configs"]}


async def test_prometheus_as_the_page_sets_it_up_is_let_in_by_its_token_and_not_without(tmp_path: Path) -> None:
    job = scrape_configs()["kb_ray_bench"]
    assert Path(job["authorization"]["credentials_file"]).is_absolute()
    # Prometheus sends what the file holds without the white space around it.
    credentials = tmp_path / "kb_bench_token"
    credentials.write_text("a-token-of-enough-characters\n")
    header = f"{job['authorization']['type']} {credentials.read_text().strip()}"
    async with service(Access({"prometheus": "a-token-of-enough-characters"})) as http:
        let_in = await http.get(job["metrics_path"], headers={"Authorization": header})
        refused = await http.get(job["metrics_path"])
    assert (let_in.status_code, refused.status_code) == (200, 401)
    assert "kb_ray_bench_workers" in let_in.text


def test_what_prometheus_scrapes_is_where_the_deployment_files_and_ray_have_it() -> None:
    jobs = scrape_configs()
    job = jobs["kb_ray_bench"]
    options = read(find("bench"))["http_options"]
    assert job["static_configs"] == [{"targets": [f"{options['host']}:{options['port']}"]}]
    assert (job["scheme"], job["metrics_path"]) == ("http", "/metrics")
    both = read(find("glm45_air_and_bench"))
    (prefix,) = [app["route_prefix"] for app in both["applications"] if app["name"] == "bench"]
    assert f"{prefix}{job['metrics_path']}, at port {both['http_options']['port']}" in PAGE
    (nodes,) = jobs["ray"]["file_sd_configs"]
    (file,) = nodes["files"]
    assert Path(file).name == PROMETHEUS_SERVICE_DISCOVERY_FILE


async def test_the_table_of_the_service_is_what_it_exports() -> None:
    async with service(Access({"a": "a-token-of-enough-characters"})) as http:
        text = (await http.get("/metrics", headers={"Authorization": "Bearer a-token-of-enough-characters"})).text
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE "))
    exported = {name: kind for name, kind in kinds.items() if not name.endswith("_created")}
    rows = {SPAN.findall(row["Exported by the service"])[0]: row for row in table("Exported by the service")}
    assert {name: row["Kind"] for name, row in rows.items()} == exported
    for metric in ALL:
        row = rows.get(metric.name) or rows.get(f"{metric.name}_total")
        assert row is None or SPAN.findall(row["Labels"]) == list(metric.labels)
