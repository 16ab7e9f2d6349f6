"""Figures of the driver's benchmark, from samples made by hand; its model and actor, as the driver meets them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.driver import beyond, figures, table
from benchmarks.driver.actor import MEAN_S, SPANS, SleepingActor
from benchmarks.driver.delays import drawn
from benchmarks.driver.resume import resumed, without_index
from benchmarks.driver.runs import Setting, model_server, write_tasks
from kb_ray.bench.actor import BenchActor, Reply
from kb_ray.bench.protocol import BenchRequest, judged
from kb_ray.extract import extract
from kb_ray.model.completer import Request
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.records import Candidate, Message, Sampling
from kb_ray.tasks import Sources, plan
from kb_ray.traces.layout import list_parts
from kb_ray.traces.store import LocalStore
from tests.unit.traces.examples import make_episode


def sample(t: float, **more: Any) -> dict[str, Any]:
    row = {"t": t, "rss_mib": 100.0, "cpu_s": t / 2, "verdicts": 60 * t, "finished": int(15 * t), "capacity": 2,
           "generating": 5, "waiting_on_model": 5, "waiting_on_bench": 5, "looks": []}  # fmt: skip
    return row | more


def test_a_rate_leaves_out_the_ramp_and_the_end() -> None:
    ramp = [sample(t, capacity=1) for t in range(5)]
    end = [sample(t, generating=1, waiting_on_bench=0) for t in range(50, 60)]
    steady = figures.sustained([*ramp, *(sample(t) for t in range(5, 50)), *end], actors=2)
    assert (steady[0]["t"], steady[-1]["t"]) == (5, 49)
    assert figures.rate(steady, "verdicts") == pytest.approx(60)


def test_memory_is_judged_by_halves_of_the_episodes() -> None:
    found = figures.memory([sample(t, rss_mib=100 + t) for t in range(1, 11)])
    assert (found["first_half_mib"], found["second_half_mib"]) == (105, 110)
    assert found["growth"] == pytest.approx(110 / 105 - 1)


def test_the_cost_of_an_episode_is_that_of_those_around_it() -> None:
    samples = [sample(t) for t in range(100)]
    found = figures.per_episode(samples, around=900, window=150)
    assert found is not None
    assert (found["wall_s"], found["cpu_s"]) == (pytest.approx(1 / 15), pytest.approx(1 / 30)), "60 verdicts a second"
    assert figures.per_episode(samples, around=5, window=1) is None


def test_puts_that_are_counted_are_parts_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond, "SECONDS", 0.05)
    found = beyond.puts(str(tmp_path), make_episode(), per_part=3)
    store = LocalStore(str(tmp_path))
    parts = list_parts(store)
    assert len(parts) >= 8 + 64, "one round of one writer, and one of eight"
    assert {len(store.get(part) or b"") / 1024 for part in parts} == {found["kib"]}
    assert min(found["puts_per_s_1"], found["puts_per_s_8"]) > 0 < found["slowest_s_8"]


def test_only_the_time_in_which_work_waited_counts_as_idle() -> None:
    looks = [1.0, 2.0, 3.0, -4.0, -5.0, 6.0, 7.0]
    windows = figures.waited([sample(0, looks=looks[:3]), sample(1, looks=looks[3:])])
    assert windows == [(1.0, 2.0), (2.0, 3.0), (6.0, 7.0)]
    busy, half = [(0.0, 10.0)], [(0.0, 1.5), (2.5, 3.5), (6.0, 6.5)]
    found = figures.idle_share([busy, half], windows)
    assert found == {"mean": pytest.approx(0.25), "most": pytest.approx(0.5), "waited_s": pytest.approx(3.0)}
    assert figures.idle_share([busy], []) is None


def test_the_longest_verdict_is_told_beside_what_it_may_be() -> None:
    ramp = sample(0, capacity=1, ended=[(-1.0, 30.0)])
    stood = [sample(t, waiting_on_bench=5, ended=[(-1.0, 20.0 + t), (t + 0.5, float(t))]) for t in (1, 2, 3)]
    found = figures.longest_verdict([ramp, *stood], [[(0.0, 1.0), (1.0, 3.5)], [(0.0, 0.5)]], actors=2)
    assert found == {"longest_s": 3.0, "at_most_s": 4 * 2.5, "one_s": 2.5}, "three rounds of two, and one ahead"
    assert figures.longest_verdict([ramp], [[(0.0, 1.0)]], actors=2) is None


def test_delays_are_drawn_by_name_around_their_mean() -> None:
    assert drawn("a", 1.0) == drawn("a", 1.0) != drawn("b", 1.0)
    values = [drawn(str(i), 2.0) for i in range(4000)]
    assert sum(values) / len(values) == pytest.approx(2.0, rel=0.05)
    assert min(values) > 0.2


def test_a_sleeping_actor_answers_as_a_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = {name for name in vars(BenchActor) if not name.startswith("_")}
    assert public <= set(dir(SleepingActor))
    monkeypatch.setenv(MEAN_S, "0.01")
    monkeypatch.setenv(SPANS, str(tmp_path))
    actor = SleepingActor("cpu", 1, "a")
    task = make_episode().task
    asked = [BenchRequest(request_id=f"e-{i}", task=task, kernel_code=f"x = {i}") for i in range(4)]
    verdicts = [Reply.model_validate_json(actor.evaluate(one.model_dump_json())).verdict for one in asked]
    assert [verdict is not None and verdict.correct for verdict in verdicts] == [False, False, False, True]
    about = [judged(task, one.kernel_code) for one in asked]
    assert [verdict and verdict.judged for verdict in verdicts] == about
    actor.stop()
    assert len(json.loads((tmp_path / "a.json").read_text())) == 4


async def test_the_waiting_model_is_one_that_the_client_understands() -> None:
    setting = Setting(episodes=1, replicas=1, slots=1, model_s=0.02)
    with model_server(setting) as url:
        client = OpenAICompleter(url, "")
        info = await client.check()
        assert info.max_model_len
        request = Request(messages=(Message(role="user", content="x"),), sampling=Sampling(), task_id="t", turn=0)
        began = time.monotonic()
        completion = await client.complete(request)
        assert time.monotonic() - began < 5
        await client.aclose()
    assert completion.reasoning
    assert isinstance(extract(completion), Candidate)


def test_its_tasks_are_tasks(tmp_path: Path) -> None:
    path = write_tasks(tmp_path / "tasks.jsonl", 3)
    skipped: list[str] = []
    assert len(plan(Sources(specs=(f"file:{path}",), samples=8), skipped.append)) == 24
    assert skipped == []


def test_a_large_store_is_read_whole(tmp_path: Path) -> None:
    uri = str(tmp_path / "large")
    found = resumed(uri, make_episode(), 95, 10)
    assert (found["episodes"], found["files"]) == (95, 10)
    assert without_index(uri)["without_index_s"] > 0


def test_the_table_takes_its_place_in_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{table.BEGIN}\nold\n{table.END}\n\nAfter.\n")
    report = {
        "machine": {"cores": 2, "processor": "x", "load_before": 0.0, "load_after": 1.0}, "store_kind": "a folder",
        "setting": {"episodes": 8, "actors": 2, "bench_s": 0.5, "replicas": 1, "slots": 2, "model_s": 1.0},
        "resume": {"episodes": 95, "files": 10, "read_s": 1.25, "start_s": 12.0, "without_index_s": 9.0,
                    "peak_mib": 99.0},
        "slow_bench": {"in_flight": 9, "limit": 12, "sound": True},
    }  # fmt: skip
    table.write(page, report)
    table.write(page, report)
    text = page.read_text()
    assert text.startswith("# Page\n")
    assert text.endswith("After.\n")
    assert text.count("| resume from 95 episodes in 10 parts, s | 1.2 | 30 |") == 1
    assert "\nold\n" not in text


def test_the_idle_actors_of_a_driver_at_its_limit_are_told_beside_their_goal() -> None:
    run = {
        "verdicts_per_s": 72.4, "actors_could_per_s": 80.0, "driver_cores": 0.8, "early": None, "late": None,
        "memory": {"first_half_mib": 303, "second_half_mib": 310, "growth": 0.02},
        "idle": {"mean": 0.078, "most": 0.14, "waited_s": 9.0}, "waits": {"model_queue_s": 0.4, "bench_s": 24.4},
        "longest": None, "in_flight": 322, "sound": True,
    }  # fmt: skip
    machine = {"cores": 2, "processor": "x", "load_before": 0.0, "load_after": 1.0}
    setting = {"episodes": 8, "actors": 2, "bench_s": 0.5, "replicas": 1, "slots": 2, "model_s": 1.0}
    text = table.render({"machine": machine, "setting": setting, "store_kind": "a folder", "run": run})
    assert "with the driver at its limit, mean and most | 7.8%, 14.0% | 5 %: **missed** |" in text
    assert "sustained | 72.4 | 60 |" in text
    slow = table.render(
        {"machine": machine, "setting": setting, "store_kind": "", "run": run | {"verdicts_per_s": 59.0}}
    )
    assert "sustained | 59.0 | 60: **missed** |" in slow
