"""How many candidates a worker of the evaluation service checks at once: as in a run, on the device that it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from deployments import bench_app
from kb_ray.bench import pool, service
from kb_ray.config import AT_ONCE, RunConfig, Shown
from kb_ray.errors import ConfigError
from kb_ray.ready import Ready
from kb_ray.serve_file import find, read
from tests.unit.test_docs import ROOT, page


def started(monkeypatch: pytest.MonkeyPatch, gpus: float, **args: Any) -> list[tuple[str, int]]:
    """(what was made, candidates at once) of a front on a cluster with so many GPUs."""
    made: list[tuple[str, int]] = []

    class Pool:
        def __init__(self, workers: Any, concurrency: int, device: str, run_id: str) -> None:
            made.append((f"pool on {device}", concurrency))

        async def start(self) -> None: ...
        async def close(self) -> None: ...

    class Service(service.Service):
        def __init__(self, verifier: Any, device: Any, *, ahead: int, **more: Any) -> None:
            made.append((f"service on {device}", ahead))
            super().__init__(verifier, device, ahead=ahead, **more)

    monkeypatch.setattr(ray, "cluster_resources", lambda: {"GPU": gpus})
    monkeypatch.setattr(pool, "BenchPool", Pool)
    monkeypatch.setattr(service, "Service", Service)
    monkeypatch.setattr(bench_app, "_bound_host", lambda: "127.0.0.1")
    return made


@pytest.mark.parametrize(
    ("gpus", "args", "wanted"),
    [
        (0.0, {}, ("cpu", 2)),
        (2.0, {}, ("cuda", 12)),
        (0.0, {"device": "cuda", "workers": [0, 8]}, ("cuda", 12)),
        (2.0, {"device": "cpu"}, ("cpu", 2)),
        (2.0, {"concurrency": 5}, ("cuda", 5)),
    ],
)
async def test_a_worker_takes_as_many_at_once_as_in_a_run_on_its_device(
    monkeypatch: pytest.MonkeyPatch, gpus: float, args: dict[str, Any], wanted: tuple[str, int]
) -> None:
    made = started(monkeypatch, gpus)
    front = bench_app.Bench.__new__(bench_app.Bench)
    await front.__init__(args)  # type: ignore[misc]
    front.__serve_build_asgi_app__()
    device, at_once = wanted
    assert made == [(f"pool on {device}", at_once), (f"service on {device}", at_once)]


@pytest.mark.parametrize("name", ["bench", "glm45_air_and_bench"])
def test_the_files_leave_it_to_the_rule_and_say_what_that_is(name: str) -> None:
    (args,) = [app["args"] for app in read(find(name))["applications"] if app["name"] == "bench"]
    assert bench_app.parse(args).concurrency is None
    assert f"at once: {AT_ONCE['cuda']} on a GPU, {AT_ONCE['cpu']} on a CPU\n" in page(find(name))


def test_the_flag_of_a_run_and_the_pages_say_the_same_numbers() -> None:
    (shown,) = [m for m in RunConfig.model_fields["bench_concurrency"].metadata if isinstance(m, Shown)]
    assert shown.default == f"{AT_ONCE['cuda']} on a GPU, {AT_ONCE['cpu']} on a CPU"
    assert f"| `--bench-concurrency` | {shown.default} |" in page(ROOT / "docs" / "cluster.md")
    told = f"{AT_ONCE['cuda']} candidates at once on a GPU and {AT_ONCE['cpu']} on a CPU"
    assert told in " ".join(page(ROOT / "docs" / "reward_functions.md").split())


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_run_goes_by_the_same_rule(device: str) -> None:
    def at_once(given: int | None) -> int:
        run = SimpleNamespace(config=SimpleNamespace(bench_concurrency=given), bench=SimpleNamespace(device=device))
        return int(Ready.bench_concurrency.fget(run))  # type: ignore[attr-defined]

    assert (at_once(None), at_once(7)) == (AT_ONCE[device], 7)


def test_none_at_once_is_refused() -> None:
    with pytest.raises(ConfigError, match="concurrency"):
        bench_app.parse({"concurrency": 0})
