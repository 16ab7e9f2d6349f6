"""`make bench-driver`: one driver at full load, with a bench that is the limit, and starting again on a large store.

    python -m benchmarks.driver --output driver.json [--document docs/scale.md] [--episodes 20000] [--only run]

Model and bench only wait, everything else is real; a Ray of its own, ended with each run. Writes JSON, and a table into
a Markdown file. Exit code 1 where an episode is missing, a store is not sound, a verdict took 10 s longer than its
place in the queue allows, or more was begun than there are places for; other goals that are missed are marked in the
table, not failed: they depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.driver import figures, table
from benchmarks.driver.beyond import ingress, puts
from benchmarks.driver.resume import resumed, started, without_index
from benchmarks.driver.runs import Setting, Traces, run
from kb_ray.records import Episode
from kb_ray.traces.layout import sources
from kb_ray.traces.resume import read_columns
from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from kb_ray.verifying.checking import check

EPISODES = 20_000
"""Of a run whose figures a document gets."""
STAGES = ("run", "busy", "slow", "curve", "beyond", "resume")
_CURVE = (8, 16, 32)
"""Fewer actors than a run has by itself, for which the rate is measured as well."""
_CURVE_S = 40
"""Seconds for which the actors have work, at the rate that they could give."""
_LATE_S = 10.0
"""By which a verdict may reach a driver that has too much to do later than its actor gave it."""
_SLACK = 2
"""Episodes that the driver begins beyond the places of model and bench."""


def main() -> int:
    """Measures what was asked for."""
    options = _options()
    setting = Setting(
        options.episodes, options.actors, options.replicas, options.slots, options.model_s, options.bench_s
    )
    report: dict[str, Any] = {"machine": _machine(), "setting": asdict(setting)}
    report["store_kind"] = "on S3" if "://" in (options.store or "") else "a folder"
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        folder = Path(scratch)
        stages = options.only or STAGES
        if "run" in stages:
            traces = run(setting, folder / "run", _under(options.store, "run"), options.profile)
            report["run"] = _figures(traces)
        if "busy" in stages:
            report["busy_bench"] = _busy(setting, folder / "busy", _under(options.store, "busy"))
        if "slow" in stages:
            report["slow_bench"] = _slow(setting, folder / "slow", _under(options.store, "slow"))
        if "curve" in stages:
            report["curve"] = [_at(replace(setting, actors=count), folder / f"curve{count}") for count in _CURVE]
        if "beyond" in stages or "resume" in stages:
            episode, per_part = _one(folder)
        if "beyond" in stages:
            uri = _under(options.store, "puts") or str(folder / "puts")
            report["beyond"] = puts(uri, episode, per_part) | ingress()
        if "resume" in stages:
            report["resume"] = _resume(folder, options, episode, per_part)
    report["machine"]["load_after"] = os.getloadavg()[0]
    text = json.dumps(report, indent=1)
    print(text)
    print(table.render(report))
    if options.output:
        options.output.write_text(text + "\n")
    if options.document and options.episodes < EPISODES:
        print(f"{options.document} keeps its figures: they are of {EPISODES} episodes")
    elif options.document:
        table.write(options.document, report)
    whole = [report[name] for name in ("run", "busy_bench", "slow_bench") if name in report]
    return int(any(map(_broken, [*whole, *report.get("curve", ())])))


def _broken(figures_of: dict[str, Any]) -> bool:
    """Whether what holds on any machine, however slow or busy, did not."""
    longest, slow = figures_of.get("longest"), figures_of.get("limit")
    starved = bool(longest) and longest["longest_s"] > longest["at_most_s"] + _LATE_S
    piled_up = slow is not None and figures_of["in_flight"] > slow
    return starved or piled_up or not figures_of["sound"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, help="JSON file")
    parser.add_argument("--document", type=Path, help="Markdown file that gets the table")
    parser.add_argument("--only", choices=STAGES, action="append")
    parser.add_argument("--store", help="s3://BUCKET/PREFIX in place of a temporary folder")
    parser.add_argument("--scratch", type=Path, help="where temporary folders go")
    parser.add_argument("--profile", type=Path, help="profile of the driver, by cProfile: slower")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--resume-episodes", type=int, default=100_000)
    parser.add_argument("--actors", type=int, default=64)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--model-s", type=float, default=2.0)
    parser.add_argument("--bench-s", type=float, default=0.8)
    return parser.parse_args()


def _figures(traces: Traces) -> dict[str, Any]:
    setting, samples = traces.setting, traces.samples
    steady = figures.sustained(samples, setting.actors)
    if len(steady) < 2:
        raise SystemExit(f"over before all {setting.actors} actors were at work for a while: give more --episodes")
    early, late = _windows(steady, setting.episodes)
    window = setting.episodes // 20
    return {
        "seconds": traces.seconds,
        "verdicts_per_s": figures.rate(steady, "verdicts"),
        "actors_could_per_s": setting.actors / setting.bench_s,
        "driver_cores": figures.rate(steady, "cpu_s"),
        "memory": figures.memory(samples),
        "early_at": early,
        "late_at": late,
        "early": figures.per_episode(steady, early, window),
        "late": figures.per_episode(steady, late, window),
        "idle": figures.idle_share(traces.spans, figures.waited(steady)),
        "in_flight": figures.in_flight(samples),
        "waits": _waits(traces.output),
        "longest": figures.longest_verdict(samples, traces.spans, setting.actors),
        "sound": _sound(traces),
    }


def _windows(steady: Sequence[figures.Row], episodes: int) -> tuple[int, int]:
    """(early, late) episodes up to which a twentieth of the run is looked at: a tenth of the run, or the twentieth
    after all actors were there; and the last that is not the end."""
    first, last = (steady[end]["verdicts"] // figures.TURNS for end in (0, -1))
    return max(episodes // 10, first + episodes // 20), min(int(0.95 * episodes), last)


def _busy(setting: Setting, folder: Path, output: str | None) -> dict[str, Any]:
    """All actors, at half of the speed: they and not the driver are the limit. Is any of them ever without work?"""
    busy = replace(setting, episodes=min(1600, setting.episodes), bench_s=2 * setting.bench_s)
    traces = run(busy, folder, output)
    steady = figures.sustained(traces.samples, busy.actors)
    return {
        "bench_s": busy.bench_s,
        "verdicts_per_s": figures.rate(steady, "verdicts"),
        "actors_could_per_s": busy.actors / busy.bench_s,
        "idle": figures.idle_share(traces.spans, figures.waited(steady)),
        "waits": _waits(traces.output),
        "longest": figures.longest_verdict(traces.samples, traces.spans, busy.actors),
        "sound": _sound(traces),
    }


def _slow(setting: Setting, folder: Path, output: str | None) -> dict[str, Any]:
    """A bench that cannot keep up: does generation wait for it?"""
    slow = replace(setting, episodes=60, actors=4, replicas=2, slots=8, model_s=0.2, bench_s=0.8)
    traces = run(slow, folder, output)
    limit = slow.replicas * slow.slots + slow.actors + _SLACK
    return {"in_flight": figures.in_flight(traces.samples), "limit": limit, "sound": _sound(traces)}


def _at(setting: Setting, folder: Path) -> dict[str, Any]:
    """What one driver makes of so many actors."""
    could = setting.actors / setting.bench_s
    traces = run(replace(setting, episodes=max(96, int(could * _CURVE_S / figures.TURNS))), folder)
    steady = figures.sustained(traces.samples, setting.actors)
    if len(steady) < 2:
        raise SystemExit(
            f"over before all {setting.actors} actors were at work for a while: this machine starts them slowly"
        )
    return {
        "actors": setting.actors, "could_per_s": could, "verdicts_per_s": figures.rate(steady, "verdicts"),
        "driver_cores": figures.rate(steady, "cpu_s"), "sound": _sound(traces),
    }  # fmt: skip


def _one(folder: Path) -> tuple[Episode, int]:
    """An episode of a short run, and how many make a part."""
    short = run(Setting(episodes=8, actors=2, replicas=1, slots=8, model_s=0.1, bench_s=0.1), folder / "one")
    return next(episodes(open_store(short.output))), short.setting.save_interval


def _resume(folder: Path, options: argparse.Namespace, episode: Episode, per_part: int) -> dict[str, Any]:
    """Of a store made of one episode."""
    uri, count = _under(options.store, "large") or str(folder / "large"), options.resume_episodes
    found = resumed(uri, episode, count, per_part)
    return found | started(folder / "again", uri, count) | without_index(uri)


def _sound(traces: Traces) -> bool:
    found = check(open_store(traces.output), processes=os.cpu_count() or 1)
    for fault in found.faults[:10]:
        print(fault)
    return found.sound and found.state == "complete"


def _waits(output: str) -> dict[str, float]:
    """Longest waits of a turn, seconds, as the traces keep them."""
    store = open_store(output)
    most = {"model_queue_s": 0.0, "bench_s": 0.0}
    columns = [f"turns.list.element.times.{name}" for name in most]
    for _, found in read_columns(store, sources(store), columns):
        for turn in (turn for turns in found.column("turns").to_pylist() for turn in turns):
            most = {name: max(value, turn["times"][name]) for name, value in most.items()}
    return most


def _under(store: str | None, name: str) -> str | None:
    return None if store is None else f"{store.rstrip('/')}/{name}-{os.getpid()}"


def _machine() -> dict[str, Any]:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model.partition(":")[2].strip() or platform.machine(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


if __name__ == "__main__":
    raise SystemExit(main())
