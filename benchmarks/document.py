"""Figures of `benchmarks.verifier` as a table in a Markdown file, between two marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.marks import put_between

BEGIN, END = "<!-- figures of make bench: begin -->", "<!-- figures of make bench: end -->"


def write(path: Path, report: dict[str, Any]) -> None:
    """Replace what stands between the marks, or append it with them."""
    put_between(path, BEGIN, END, render(report))


def render(report: dict[str, Any]) -> str:
    """A paragraph on the machine and a table: what, measured, goal."""
    machine = report["machine"]
    head = (
        f"{machine['gpu'] or 'CPU'} (driver {machine['driver'] or 'none'}), torch {machine['torch']}, "
        f"triton {machine['triton']}, Python {machine['python']}; "
        f"{report['options']['concurrency']} candidates at once.\n"
    )
    rows = [line for name, lines in _ROWS.items() if name in report for line in lines(report[name])]
    return "\n".join([head, "| | measured | goal |", "|---|---|---|", *rows])


def _small(found: dict[str, Any]) -> list[str]:
    return [
        f"| verdicts a minute, 4096 x 1024 | {found['verdicts_per_minute']:.0f} | 220 |",
        f"| ... the bound: a context every {found['context_s']:.3f} s, {found['exclusive_s']:.3f} s alone on the card "
        f"| {found['bound_per_minute']:.0f} | |",
        f"| seconds for one verdict alone | {found['seconds_alone']:.2f} | |",
        f"| kernel median over the verdicts, us | {_range(found['kernel_us'])} | |",
    ]


def _giant(found: dict[str, Any]) -> list[str]:
    alone, two = found["seconds_per_verdict"], found["seconds_per_verdict_two_at_once"]
    return [f"| seconds a verdict, 4096 x 393216; two at once | {alone:.2f}; {two:.2f} | 2.5 |"]


def _static(found: dict[str, Any]) -> list[str]:
    slowest = max(value for name, value in found.items() if name.endswith("_ms"))
    return [f"| syntax error, no kernel, forbidden: ms, processes started | {slowest:.1f}, 0 | 50 |"]


def _failures(found: dict[str, Any]) -> list[str]:
    slowest = max(found[name]["seconds_after_death"] for name in ("abort", "exit", "segfault"))
    hang, illegal = found["hang"], found["illegal_access"]
    return [
        f"| seconds from a death to its verdict | {slowest:.2f} | 1 |",
        f"| a hang with {hang['timeout_s']:.0f} s: seconds to the verdict, then to its memory "
        f"| {hang['seconds']:.2f}, {hang['memory_back_after_s']:.2f} | 4, 2 |",
        f"| right verdicts right after an illegal access | {illegal['next_right']} of {illegal['of']} | all |",
    ]


def _steadiness(found: dict[str, Any]) -> list[str]:
    return [
        f"| variation over 10 verdicts of a {found['kernel_us']['median']:.0f} us kernel "
        f"| {found['cv_percent']:.2f} % | 2 % |",
        f"| a kernel against a copy of itself | {_range(found['ratio_to_a_copy'], 4)} | 0.99 to 1.01 |",
    ]


def _memory(found: dict[str, Any]) -> list[str]:
    first, last = found["points"][1], found["points"][-1]
    grown = {role: last[role] - first[role] for role in first if role not in ("verdicts", "self_peak")}
    said = ", ".join(f"{role} {value:+.0f}" for role, value in grown.items())
    return [f"| MiB resident from {first['verdicts']} to {last['verdicts']} verdicts | {said} | flat |"]


def _gpus(found: dict[str, Any]) -> list[str]:
    return [f"| two GPUs over one | {found['ratio']:.2f} | 1.9 |"]


def _kernelbench(found: dict[str, Any]) -> list[str]:
    return [
        f"| KernelBench itself ({found['commit'][:7]}): verdicts a minute, 4096 x 1024 "
        f"| {found['small_per_minute']:.0f} | |",
        f"| KernelBench itself: seconds a verdict, 4096 x 393216 | {found['giant_seconds']:.0f} | |",
    ]


def _range(spread: dict[str, float], digits: int = 1) -> str:
    return f"{spread['min']:.{digits}f} to {spread['max']:.{digits}f}"


_ROWS = {
    "small": _small, "giant": _giant, "static": _static, "failures": _failures, "steadiness": _steadiness,
    "memory": _memory, "gpus": _gpus, "kernelbench": _kernelbench,
}  # fmt: skip
