"""Evaluation over HTTP through real Ray Serve: a real pool, real candidates, and what becomes of those given up."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deployments import bench_app
from kb_ray.bench.client import BenchClient
from kb_ray.bench.replies import REFUSAL
from kb_ray.bench.sweep import base_dir, claim, release
from kb_ray.env_vars import BENCH_TOKEN, BENCH_TOKEN_FILE
from kb_ray.errors import ConfigError
from kb_ray.serve import find
from tests.ray.pool_pieces import ABORT, KERNEL

SECRET = "a-token-of-enough-characters"
TOKEN = {"Authorization": f"Bearer {SECRET}"}
ARGS = {"workers": 1, "concurrency": 2, "device": "cpu", "queue_limit": 24, "limits": {"batch": 8}}


def arguments(name: str = "k", added: float = 1.0, code: str = KERNEL, **more: Any) -> dict[str, Any]:
    return {
        "kernel_code": code.format(name=name, added=added, block=16),
        "reference_torch_code": "def reference_impl(x):\n    return x + 1\n",
        "input_shapes": {"x": {"shape": [64], "dtype": "float32"}},
        "n_correctness": 2,
        "request_id": name,
    } | more


PATIENCE_S = 180.0
"""For whatever does not take as long on a machine with nothing else to do."""
ENDLESS_S = 900
ENDLESS = KERNEL.replace("n = x.numel()", f"n = x.numel(); import time; time.sleep({ENDLESS_S})")


def candidates() -> set[Path]:
    """Process groups of candidates of this cluster's services that live now: others on this machine have their own."""
    from ray.util import list_named_actors

    names = [str(actor["name"]) for actor in list_named_actors(all_namespaces=True)]
    workers = [name for name in names if name.startswith("kb-bench-http-")]
    return {group for name in workers for group in base_dir().glob(f"{name}-*/candidates/groups/*")}


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.touch(mode=0o600)
    file.write_text(f"tests {SECRET}\n")
    return file


@pytest.fixture(scope="module")
def url(ray_cluster: str, tokens: Path) -> Iterator[str]:
    """The service with a token, behind Serve on loopback."""
    from ray import serve
    from ray.serve.context import _get_global_client

    ours = not serve.status().proxies
    if ours:
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": free_port()})
    options = _get_global_client().http_config
    try:
        app = bench_app.build(ARGS | {"token_file": str(tokens)})
        serve.run(app, name="bench", route_prefix="/bench")
        yield f"http://{options.host}:{options.port}/bench"
    finally:
        serve.delete("bench")
        if ours:
            serve.shutdown()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def client(url: str) -> Iterator[BenchClient]:
    with BenchClient(url, SECRET, at_once=16) as client:
        yield client


def test_each_gets_its_own_verdict_one_by_one_in_a_batch_and_in_a_stream(client: BenchClient) -> None:
    one = client.evaluate(**arguments("only"))
    assert (one["status"], one["correctness"], one["timed"], one["request_id"]) == ("ok", True, False, "only")
    wanted = {
        "right": arguments("right"),
        "wrong": arguments("wrong", added=2.0),
        "crash": arguments("crash", code=ABORT),
        "text": arguments("text", kernel_code="def"),
    }
    statuses = {"right": "ok", "wrong": "mismatch", "crash": "crash", "text": "syntax_error"}
    batch = client.batch(list(wanted.values()))
    stream = dict(client.stream(wanted.values(), ordered=False))
    for answers in (batch, [stream[number] for number in range(4)]):
        assert {answer["request_id"]: answer["status"] for answer in answers} == statuses
        assert [answer["request_id"] for answer in answers] == list(wanted)
    assert batch[0]["evidence"]["kernels"] == ["right"]


@pytest.fixture
def stranger() -> Iterator[None]:
    """A worker of somebody else's service on this machine, with a candidate at work."""
    folder = claim("kb-bench-http-another-0")
    group = folder / "candidates" / "groups" / str(2**30)
    group.touch()
    yield
    # No process group has this number, but who releases a folder kills those that stand there.
    group.unlink()
    release(folder)


async def leave_once_it_runs(url: str, body: dict[str, Any]) -> None:
    """Asks for one candidate, and closes the connection when it is at work."""
    async with httpx.AsyncClient(headers=TOKEN, timeout=None) as http:
        asking = asyncio.create_task(http.post(url, json=body))
        assert await asyncio.to_thread(wait_for, lambda: len(candidates()) == 1)
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.usefixtures("stranger")
def test_who_leaves_has_its_candidate_killed(url: str, client: BenchClient) -> None:
    assert wait_for(lambda: not candidates())
    body = arguments("endless", code=ENDLESS, timeout_s=ENDLESS_S)
    asyncio.run(leave_once_it_runs(f"{url}/evaluate", body))
    assert wait_for(lambda: not candidates())
    stream = client.stream([body | {"request_id": str(n)} for n in range(6)])
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(next, stream)
        assert wait_for(lambda: len(candidates()) == 2)
        client.close()
        assert first.exception(PATIENCE_S) is not None
    assert wait_for(lambda: not candidates())
    with BenchClient(url, SECRET) as other:
        assert other.evaluate(**arguments("after"))["status"] == "ok"


def test_many_at_once_are_told_to_wait_and_all_are_answered(url: str, client: BenchClient) -> None:
    number = 60
    wanted = [
        arguments(f"n{n}") if n % 10 == 0 else arguments(f"n{n}", kernel_code="\n" * n + "def") for n in range(number)
    ]
    with BenchClient(url, SECRET, at_once=40) as many:
        answers = dict(many.stream(wanted, ordered=False))
    assert sorted(answers) == list(range(number))
    for n, answer in answers.items():
        assert answer["request_id"] == f"n{n}"
        assert answer["status"] == ("ok" if n % 10 == 0 else "syntax_error")
        assert n % 10 == 0 or answer["error_detail"]["line"] == n + 1
    told = httpx.get(f"{url}/metrics", headers=TOKEN, timeout=PATIENCE_S).text
    assert 'kb_ray_bench_http_responses_total{code="429",path="/evaluate"}' in told
    for line in (
        'kb_ray_bench_workers{state="ready"} 1.0', 'kb_ray_bench_workers{state="not_ready"} 0.0',
        "kb_ray_bench_wanted_workers 1.0", "kb_ray_verdicts_in_flight 0.0", "kb_ray_bench_utilisation 0.0",
        "kb_ray_bench_http_capacity 2.0", "kb_ray_quarantined_gpus 0.0", "kb_ray_infra_retries_total 0.0",
    ):  # fmt: skip
        assert f"\n{line}\n" in told
    # Candidates that ran have spent time on it.
    assert 'kb_ray_phase_seconds_total{phase="check"}' in told
    assert SECRET not in told


def test_the_service_wants_its_token_says_how_it_is_and_what_it_takes(url: str) -> None:
    refused = httpx.post(f"{url}/evaluate", json=arguments(), timeout=PATIENCE_S)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    health = httpx.get(f"{url}/healthz", timeout=PATIENCE_S)
    assert (health.status_code, health.json()["ready_workers"]) == (200, 1)
    assert "/evaluate/batch" in httpx.get(f"{url}/openapi.json", timeout=PATIENCE_S).json()["paths"]


def test_the_token_reaches_neither_candidates_nor_logs(client: BenchClient, tokens: Path) -> None:
    import ray

    theft = KERNEL.replace("n = x.numel()", f"n = x.numel(); raise OSError(open('{tokens}').read())")
    theft = client.evaluate(**arguments("theft", code=theft))
    assert theft["status"] == "runtime_error"
    assert "PermissionError" in theft["error"]
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    texts = [path.read_text(errors="replace") for path in logs.rglob("*") if path.is_file()]
    assert any("/evaluate" in text for text in texts), "Serve notes its requests there"
    assert not any(SECRET in text for text in texts)
    assert SECRET not in str(theft)


def test_a_task_that_no_machine_here_can_run_is_no_verdict_and_no_trouble_of_ours(url: str) -> None:
    body = arguments(reference_torch_code="def reference_impl(x):\n    raise ValueError('no')\n")
    answer = httpx.post(f"{url}/evaluate", json=body, headers=TOKEN, timeout=PATIENCE_S)
    assert answer.status_code == 422
    assert "reference" in answer.json()["error"]


def test_behind_serves_proxy_a_path_that_is_not_there_is_told_from_an_application_that_is_not_there(url: str) -> None:
    own, serves = (httpx.post(f"{url}{path}", headers=TOKEN, timeout=PATIENCE_S) for path in ("/wrong", "-wrong"))
    assert (own.status_code, REFUSAL in own.headers) == (404, True)
    assert (serves.status_code, REFUSAL in serves.headers) == (404, False)
    with (
        BenchClient(f"{url}/wrong", SECRET) as wrong,
        pytest.raises(ConfigError, match=r"it has no path /bench/wrong/"),
    ):
        wrong.evaluate(**arguments())


def test_the_deployment_file_is_one_that_serve_and_the_builder_take(ray_cluster: str) -> None:
    from ray.serve.schema import ServeDeploySchema

    config = yaml.safe_load(find("bench").read_text())
    ServeDeploySchema.model_validate(config)
    args = config["applications"][0]["args"]
    assert bench_app.parse(args) == bench_app.BenchArgs()
    assert bench_app.build(args)
    assert config["http_options"]["host"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"worker": 1}, "worker: "),
        ({"limits": {"batch": 600}}, "more than half of queue_limit"),
        ({"workers": "a"}, "workers"),
    ],
)
def test_a_wrong_argument_is_one_line(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        bench_app.parse(wrong)
    assert "\n" not in str(error.value)


async def test_open_to_others_without_a_token_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BENCH_TOKEN, BENCH_TOKEN_FILE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(bench_app, "_bound_host", lambda: "0.0.0.0")
    with pytest.raises(ConfigError, match="needs a token"):
        await bench_app.Bench.__init__(object.__new__(bench_app.Bench), ARGS)
