"""Figures of `make bench-driver` as a table in a Markdown file, between two marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.marks import goal, put_between

BEGIN, END = "<!-- figures of make bench-driver: begin -->", "<!-- figures of make bench-driver: end -->"

_PER_S, _MEMORY, _SLOWER, _IDLE, _RESUME_S = 60.0, 0.05, 0.10, 0.05, 30.0
"""Goals: verdicts a second; growth of memory; of the time per episode; an actor's share without work; seconds."""


def write(path: Path, report: dict[str, Any]) -> None:
    """Replaces what stands between the marks, or appends it with them."""
    put_between(path, BEGIN, END, render(report))


def render(report: dict[str, Any]) -> str:
    """A line on what ran where, and a row for each figure: what, measured, goal."""
    machine, setting = report["machine"], report["setting"]
    head = (
        f"{machine['cores']} cores ({machine['processor']}), load {machine['load_before']:.1f} before and "
        f"{machine['load_after']:.1f} after; {setting['episodes']} episodes x 4 turns, {setting['actors']} actors of "
        f"{setting['bench_s']:g} s, {setting['replicas']} replicas x {setting['slots']} answers of "
        f"{setting['model_s']:g} s; store {report['store_kind']}.\n"
    )
    rows = [f"| {what} | {measured} | {wanted} |" for what, measured, wanted in _rows(report)]
    return "\n".join([head, "| | measured | goal |", "|---|---|---|", *rows])


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if run := report.get("run"):
        yield from _run(run)
    if busy := report.get("busy_bench"):
        told = f"{busy['verdicts_per_s']:.1f} of {busy['actors_could_per_s']:.1f}"
        yield f"actors of {busy['bench_s']:g} s as the limit: verdicts a second", told, ""
        if idle := busy["idle"]:
            yield "... idle while work waited, mean and most", f"{idle['mean']:.1%}, {idle['most']:.1%}", _idle(idle)
        yield "... longest verdict, waiting included, s", f"{busy['waits']['bench_s']:.1f}", ""
        yield from _longest(busy)
    if slow := report.get("slow_bench"):
        most, limit = slow["in_flight"], slow["limit"]
        yield "slow bench: episodes in flight at most", str(most), goal(f"at most {limit}", most <= limit)
    for one in report.get("curve", ()):
        told = f"{one['verdicts_per_s']:.1f} of {one['could_per_s']:.1f}, with {one['driver_cores']:.2f} of a core"
        yield f"one driver with {one['actors']} actors: verdicts a second", told, ""
    if beyond := report.get("beyond"):
        told = f"{beyond['puts_per_s_1']:.0f}, {beyond['puts_per_s_8']:.0f}"
        yield (
            f"parts of {beyond['per_part']} episodes that the store takes a second, from one and eight threads",
            told,
            "",
        )
        told = f"{beyond['answers_per_s']:.0f} ({beyond['in_flight'] / beyond['answer_s']:.0f} at most)"
        yield f"answers of {beyond['answer_s']:g} s that one proxy of Ray Serve passes on a second", told, ""
    if resume := report.get("resume"):
        size = f"{resume['episodes']} episodes in {resume['files']} parts"
        read_s, start_s = resume["read_s"], resume["start_s"]
        yield f"resume from {size}, s", f"{read_s:.1f}", goal("30", read_s < _RESUME_S)
        yield "... until the first question of a real start, s", f"{start_s:.1f}", goal("30", start_s < _RESUME_S)
        yield "... without an index, s", f"{resume['without_index_s']:.1f}", ""
        yield "... peak memory, MiB", f"{resume['peak_mib']:.0f}", ""


def _run(run: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    rate = run["verdicts_per_s"]
    yield "verdict round trips a second, sustained", f"{rate:.1f}", goal("60", rate >= _PER_S)
    yield "... what the actors could give", f"{run['actors_could_per_s']:.1f}", ""
    yield "... share of one core that the driver took", f"{run['driver_cores']:.2f}", ""
    memory = run["memory"]
    yield (
        "driver memory, peak of the first and second half, MiB",
        (f"{memory['first_half_mib']:.0f}, {memory['second_half_mib']:.0f} ({memory['growth']:+.1%})"),
        goal("+5 %", memory["growth"] <= _MEMORY),
    )
    early, late = run["early"], run["late"]
    if early and late:
        slower = late["wall_s"] / early["wall_s"] - 1
        yield (
            f"ms per episode, wall, around {run['early_at']} and {run['late_at']}",
            (f"{1e3 * early['wall_s']:.1f}, {1e3 * late['wall_s']:.1f} ({slower:+.1%})"),
            goal("+10 %", slower <= _SLOWER),
        )
        yield (
            "... CPU of the driver",
            (f"{1e3 * early['cpu_s']:.1f}, {1e3 * late['cpu_s']:.1f} ({late['cpu_s'] / early['cpu_s'] - 1:+.1%})"),
            "",
        )
    if idle := run["idle"]:
        told = f"{idle['mean']:.1%}, {idle['most']:.1%}"
        yield "actors idle while work waited, with the driver at its limit, mean and most", told, _idle(idle)
    yield "longest wait for a place with the model, s", f"{run['waits']['model_queue_s']:.1f}", ""
    yield "longest verdict, waiting included, s", f"{run['waits']['bench_s']:.1f}", ""
    yield from _longest(run)
    yield "episodes in flight at most", str(run["in_flight"]), ""
    yield "store afterwards", "sound" if run["sound"] else "faults", goal("sound", run["sound"])


def _idle(idle: dict[str, float]) -> str:
    return goal("5 %", idle["most"] <= _IDLE)


def _longest(run: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if longest := run["longest"]:
        told, most = "... longest that was asked for once all actors stood, s", longest["at_most_s"]
        yield told, f"{longest['longest_s']:.1f}", goal(f"at most {most:.1f}", longest["longest_s"] <= most)
