"""What a person sees of a run: the plan, live progress, the summary. Text from numbers, nothing else.

On a terminal a display that refreshes in place, otherwise one line every 30 s: job logs are read line by
line. In a JSON log the same numbers as fields. Does not count anything itself and decides nothing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TextIO

from kb_ray import logs
from kb_ray.records import StopReason
from kb_ray.tally import Tally
from kb_ray.traces.views import reading_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kb_ray.config import RunConfig
    from kb_ray.drive import Ending
    from kb_ray.preflight import Ready

LINE_EVERY_S = 30.0
_REFRESH_S = 0.5


def plan_text(ready: Ready) -> str:
    """What a run will do: tasks by source and level, model, device, output, identity."""
    config, run = ready.config, ready.run
    by_source = Counter((task.source, task.level) for task, _ in ready.planned)
    tasks = ", ".join(
        f"{count} {source}" + (f" level {level}" if level is not None else "")
        for (source, level), count in sorted(by_source.items(), key=str)
    )
    of_all = "" if ready.shard.whole else f", shard {ready.shard} of {len(ready.everything)}"
    begun = f"{ready.earlier} already in the store" if ready.earlier else "none yet in the store"
    rows = {
        "run": f"{run.run_id} (fingerprint {run.fingerprint})",
        "episodes": f"{len(ready.planned)} planned{of_all}: {tasks}",
        "to do": f"{len(ready.work)}; {begun}" + (f"; {len(ready.again)} to try once more" if ready.again else ""),
        "model": ready.model.model + ("" if config.scripted or ready.model.in_process else f" at {config.vllm_url}"),
        "turns": f"up to {config.turns}{_single(config)}, target speedup {config.target_speedup:g}",
        "device": _device_text(ready),
        **({"examples": ready.examples.summary} if ready.examples else {}),
        "output": ready.store.uri,
    }
    if ready.cluster is not None and ready.cluster.dashboard:
        rows["ray"] = f"dashboard at http://{ready.cluster.dashboard}; workers are named kb-bench-{run.run_id}-N"
    return "\n".join(f"{name + ':':10}{value}" for name, value in rows.items())


def _single(config: RunConfig) -> str:
    """What one turn is due to, where more were asked for."""
    given = "max_turns" in config.model_fields_set and not config.multi_turn and config.max_turns > 1
    return " (--max-turns counts with --multi-turn alone)" if given else ""


def first_prompt_text(ready: Ready) -> str:
    """The first request of the first episode, as the model will see it."""
    messages, _ = ready.opening(ready.everything[0][0])
    return "\n".join(f"--- {message.role} ---\n{message.content}" for message in messages)


def progress_line(tally: Tally, now: float) -> str:
    """One line: done/total, verdicts, speeds, what is waited for, time left. Also a mark for the speeds."""
    rates = tally.rates(now)
    return " | ".join(
        [
            f"{tally.done}/{tally.total + tally.retries} episodes",
            _counts(tally.statuses) or "no verdict yet",
            f"{rates.verdicts_per_min:.1f} verdicts/min",
            f"{rates.tokens_per_s:.0f} tokens/s",
            f"waiting: {tally.waiting_on_model} on model, {tally.waiting_on_bench} on bench",
            f"ETA {_duration(rates.eta_s) if rates.eta_s is not None else 'unknown'}",
        ]
    )


@asynccontextmanager
async def progress(tally: Tally, stream: TextIO | None = None) -> AsyncIterator[None]:
    """Shows progress while the `with` lasts: in place on a terminal, else a line every 30 s and a last one.

    `stream` is stderr unless given.
    """
    stream = stream or sys.stderr
    in_place = stream.isatty() and not logs.as_json()
    task = asyncio.create_task(_in_place(tally, stream) if in_place else _lines(tally, stream))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        _say_progress(tally, stream)


def summary_text(ready: Ready, tally: Tally, ending: Ending, written: int) -> str:
    """How the run ended, what came of it, where the traces are and how to read them."""
    uri = ready.store.uri
    rows = {
        "episodes": f"{tally.finished} finished now, {written} written"
        + (f", {tally.earlier} by earlier starts" if tally.earlier else ""),
        "ended by": _counts(tally.stop_reasons) or "none",
        "verdicts": _counts(tally.statuses) or "none",
        "solved at": ", ".join(f"turn {turn}: {n}" for turn, n in sorted(tally.success_turns.items())) or "-",
        "tokens": f"{tally.tokens} generated",
        "took": _duration(time.monotonic() - tally.started),
        "traces": uri,
    }
    if written or tally.earlier:
        rows["read with"] = reading_line(ready.store)
    if tally.best_speedup is not None:
        rows["best"] = f"{tally.best_speedup:.2f}x the reference"
    if ready.examples is not None and (short := ready.examples.shortage) is not None:
        rows["examples"] = short
    lines = [f"{name + ':':11}{value}" for name, value in rows.items()]
    if ending.kind != "done":
        lines.append(f"stopped:   {_short(ending.message)}; start the same command again to go on")
    elif tally.to_redo:
        why = f", the last with: {_short(tally.last_failure)}" if tally.last_failure else ""
        lines.append(f"to redo:   {tally.to_redo} failed episodes{why}; start the same command again to redo them")
    terse = "" if ready.config.prompt == "terse" else ", or take --prompt terse"
    if full := tally.stop_reasons[StopReason.CONTEXT.value]:
        lines.append(
            f"window:    {full} episodes had no room left in the model's window for one more prompt and --max-tokens: "
            f"lower --max-tokens{terse}, into another --output"
        )
    return "\n".join(lines)


async def _lines(tally: Tally, stream: TextIO) -> None:
    while True:
        await asyncio.sleep(LINE_EVERY_S)
        _say_progress(tally, stream)


def _say_progress(tally: Tally, stream: TextIO) -> None:
    line = progress_line(tally, time.monotonic())
    if not logs.as_json():
        print(line, file=stream, flush=True)
        return
    logs.tell(
        line,
        "progress",
        done=tally.done,
        planned=tally.total + tally.retries,
        statuses=dict(tally.statuses),
        generating=tally.generating,
        waiting_on_model=tally.waiting_on_model,
        waiting_on_bench=tally.waiting_on_bench,
        tokens=tally.tokens,
    )


async def _in_place(tally: Tally, stream: TextIO) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(_panel(tally), refresh=True)
            await asyncio.sleep(_REFRESH_S)


def _panel(tally: Tally) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    now = time.monotonic()
    rates = tally.rates(now)
    total = tally.total + tally.retries
    table = Table.grid(padding=(0, 2))
    rows = {
        "verdicts": _counts(tally.statuses) or "none yet",
        "speed": f"{rates.verdicts_per_min:.1f} verdicts/min, {rates.tokens_per_s:.0f} tokens/s",
        "waiting": f"{tally.waiting_on_model} on model, {tally.waiting_on_bench} on bench",
        "time": f"{_duration(now - tally.started)} so far, "
        + (f"{_duration(rates.eta_s)} left" if rates.eta_s is not None else "time left not known yet"),
    }
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(value))
    bar = Table.grid(padding=(0, 2))
    bar.add_row(ProgressBar(total=max(total, 1), completed=tally.done, width=40), f"{tally.done}/{total}")
    return Group(bar, table)


def _device_text(ready: Ready) -> str:
    if ready.bench.device == "cpu":
        return "cpu: Triton's interpreter; correctness only, nothing is timed"
    gpu = f" ({ready.cluster.gpu_type})" if ready.cluster and ready.cluster.gpu_type else ""
    return f"cuda{gpu}: correctness and speed"


def _short(text: str, limit: int = 300) -> str:
    """`text` as one line of at most `limit` characters and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit] + "..."


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
