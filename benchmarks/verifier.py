"""How fast verdicts are and how steady: figures of one machine, as JSON, and what bounds them.

    python -m benchmarks.verifier --output bench.json [--only small,giant] [--kernelbench CHECKOUT]

On a GPU; `--device cpu --only static,memory` works on any machine. Each section is independent; `--only` picks some.
With a checkout of KernelBench its own `eval_kernel_against_ref` is timed beside, on the same kernels with as many
trials, each in a fresh process, as its batch script does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import candidates, document, kernelbench, watching
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.records import Task, Verdict

Section = Callable[["Bench"], dict[str, Any]]


class Bench:
    """One evaluator under measurement."""

    def __init__(self, options: argparse.Namespace, gpu: str = "0") -> None:
        self.options = options
        name = f"benchmark-{gpu}"
        self.evaluator = Evaluator(
            device=options.device,
            gpu=gpu if options.device == "cuda" else None,
            concurrency=options.concurrency,
            name=name,
        )
        self.evaluator.start()
        self._count = 0

    def verdict(self, task: Task, code: str, **settings: Any) -> Verdict:
        self._count += 1
        wanted = BenchSettings(**({"device": self.options.device, "timeout_s": 60.0} | settings))
        request = BenchRequest(request_id=f"b{self._count}-{id(code)}", task=task, kernel_code=code, settings=wanted)
        return self.evaluator.evaluate(request)

    def many(self, task: Task, codes: Iterable[str], at_once: int, **settings: Any) -> tuple[list[Verdict], float]:
        """Verdicts and the seconds that all of them took together."""
        started = time.perf_counter()
        with ThreadPoolExecutor(at_once) as threads:
            verdicts = list(threads.map(lambda code: self.verdict(task, code, **settings), codes))
        return verdicts, time.perf_counter() - started


def small(bench: Bench) -> dict[str, Any]:
    """Distinct correct kernels at 4096 x 1024 with full verdicts, and the floor under their time."""
    task, n, at_once = candidates.add_relu(candidates.SMALL), bench.options.verdicts, bench.options.concurrency
    alone = [bench.verdict(task, candidates.right(i)) for i in range(3)]
    verdicts, seconds = bench.many(task, map(candidates.right, range(100, 100 + n)), at_once)
    broken = "raise ImportError\n"
    _, starting = bench.many(task, (broken + candidates.right(i) for i in range(48)), at_once)
    phases = sum((Counter(v.seconds) for v in verdicts), Counter())
    exclusive, context = phases["timing"] / n, starting / 48
    return {
        "verdicts_per_minute": 60 * n / seconds,
        "ok": sum(v.correct for v in verdicts),
        "trusted": sum(v.trusted for v in verdicts),
        "seconds_alone": statistics.median(v.seconds["total"] for v in alone),
        "context_s": context,
        "exclusive_s": exclusive,
        "bound_per_minute": 60 / (context + exclusive),
        "phase_seconds": {name: total / n for name, total in phases.items()},
        "speedup": spread([v.speedup or 0 for v in verdicts]),
        "kernel_us": spread([v.kernel_time.median_ms * 1e3 for v in verdicts if v.kernel_time]),
    }


def giant(bench: Bench) -> dict[str, Any]:
    """KernelBench's own size, 4096 x 393216 float32, one after the other and two at once."""
    task = candidates.relu_module(candidates.GIANT)
    first = bench.verdict(task, candidates.right_module(0))
    one, alone = bench.many(task, map(candidates.right_module, range(1, 5)), 1)
    two, pair = bench.many(task, map(candidates.right_module, range(5, 11)), 2)
    return {
        "seconds_per_verdict": alone / 4,
        "seconds_per_verdict_two_at_once": pair / 6,
        "first_s": first.seconds["total"],
        "statuses": Counter(v.status for v in (first, *one, *two)),
        "flags": Counter(flag for v in (first, *one, *two) for flag in v.evidence.flags),
        "phase_seconds": {k: statistics.mean(v.seconds.get(k, 0.0) for v in one) for k in one[0].seconds},
        "kernel_ms": spread([v.kernel_time.median_ms for v in (*one, *two) if v.kernel_time]),
        "errors": [v.error.message for v in (first, *one, *two) if v.error],
    }


def static(bench: Bench) -> dict[str, Any]:
    """What the source alone decides; an evaluator that was never started answers it."""
    idle = Evaluator(device="cuda", gpu="0", name="idle")
    task = candidates.add_relu(candidates.SMALL)
    codes = {
        "syntax_error": candidates.right(0).replace("def triton", "def def triton"),
        "forbidden": "import subprocess\n" + candidates.right(0),
        "no_kernel": "x = 1\n",
    }
    found = {}
    for status, code in codes.items():
        request = BenchRequest(request_id=status, task=task, kernel_code=code)
        started = time.perf_counter()
        assert idle.evaluate(request).status == status
        found[f"{status}_ms"] = (time.perf_counter() - started) * 1e3
    return found | {"processes_started": len(idle.pids())}


def failures(bench: Bench) -> dict[str, Any]:
    """From a death to its verdict; a hang to its verdict and to its memory; the verdict after an illegal access."""
    task = candidates.add_relu(candidates.SMALL)
    dying = {"abort": "os.abort()", "exit": "os._exit(0)", "segfault": "os.kill(os.getpid(), 11)"}
    found: dict[str, Any] = {}
    for i, (name, statement) in enumerate(dying.items()):
        code = candidates.first_doing(f"import os, time; print('died', time.time(), flush=True); {statement}", i)
        verdict = bench.verdict(task, code)
        answered = time.time()
        said = verdict.error.detail.rpartition("died ")[2].split()[0] if verdict.error else "nan"
        found[name] = {"status": verdict.status, "seconds_after_death": answered - float(said)}
    spin = candidates.right(9).replace(
        "    tl.store", "    while tl.load(out_ptr) != 1e30:\n        tl.store(out_ptr, 0.0)\n    tl.store"
    )
    before = watching.gpu_bytes()
    started = time.perf_counter()
    hung = bench.verdict(task, spin, timeout_s=3.0)
    took, back = (
        time.perf_counter() - started,
        watching.seconds_until(lambda: watching.gpu_bytes() <= before + (64 << 20)),
    )
    others = sum(s for name, s in hung.seconds.items() if name not in ("total", "check"))
    found["hang"] = {
        "status": hung.status, "timeout_s": 3.0, "seconds": took, "seconds_in_check": hung.seconds.get("check"),
        "seconds_elsewhere": others, "memory_back_after_s": back,
    }  # fmt: skip
    pairs = []
    for i in range(5):
        pairs.append(
            (bench.verdict(task, candidates.out_of_bounds(20 + i)), bench.verdict(task, candidates.right(40 + i)))
        )
    found["illegal_access"] = {
        "seen": sum(bad.status == "illegal_access" for bad, _ in pairs),
        "next_right": sum(good.correct for _, good in pairs),
        "of": len(pairs),
    }
    return found


def steadiness(bench: Bench) -> dict[str, Any]:
    """Ten fresh verdicts of one kernel that takes over 50 us, and a kernel against a copy of itself."""
    shape = candidates.MEDIUM
    again = [bench.verdict(candidates.add_relu(shape), candidates.right(7)) for _ in range(10)]
    medians = [v.kernel_time.median_ms * 1e3 for v in again if v.kernel_time]
    same = [bench.verdict(candidates.own_copy(shape), candidates.right(8)) for _ in range(5)]
    return {
        "kernel_us": spread(medians),
        "cv_percent": 100 * statistics.stdev(medians) / statistics.mean(medians),
        "ratio_to_a_copy": spread([v.speedup or 0 for v in same]),
        "trusted": sum(v.trusted for v in (*again, *same)),
        "flags": Counter(flag for v in (*again, *same) for flag in v.evidence.flags),
    }


def memory(bench: Bench) -> dict[str, Any]:
    """Resident memory of judge and zygotes, and of this process, after more and more verdicts."""
    shape = candidates.SMALL if bench.options.device == "cuda" else candidates.TINY
    task, n, at_once = candidates.add_relu(shape), bench.options.memory_verdicts, bench.options.concurrency
    points = []
    for part in range(5):
        if part:
            bench.many(task, map(candidates.right, range(10_000 * part, 10_000 * part + n // 4)), at_once)
        points.append({"verdicts": part * (n // 4)} | watching.resident(bench.evaluator.pids()))
    return {"points": points}


def gpus(bench: Bench) -> dict[str, Any]:
    """The kernels of `small` on one GPU and on two, one evaluator each, in one run; needs two."""
    task, n, at_once = candidates.add_relu(candidates.SMALL), bench.options.verdicts, bench.options.concurrency
    second = Bench(bench.options, gpu="1")

    def measured(benches: list[Bench], first: int, broken: str = "") -> tuple[int, float, float]:
        """(correct, seconds, cores busy) of `n` kernels on each."""
        codes = [[broken + candidates.right(first + 5000 * i + k) for k in range(n)] for i in range(len(benches))]
        cpu, started = watching.cpu_seconds(), time.perf_counter()
        with ThreadPoolExecutor(2) as both:
            parts = [both.submit(b.many, task, own, at_once) for b, own in zip(benches, codes, strict=True)]
            ok = sum(v.correct for part in parts for v in part.result()[0])
        took = time.perf_counter() - started
        return ok, took, (watching.cpu_seconds() - cpu) / took

    try:
        second.verdict(task, candidates.right(1))
        _, alone, cores_one = measured([bench], 50_000)
        ok, together, cores_two = measured([bench, second], 60_000)
        _, starts_one, _ = measured([bench], 80_000, "raise ImportError\n")
        _, starts_two, _ = measured([bench, second], 90_000, "raise ImportError\n")
    finally:
        second.evaluator.stop()
    one, two = 60 * n / alone, 60 * 2 * n / together
    return {
        "one_per_minute": one, "two_per_minute": two, "ratio": two / one, "ok": ok, "of": 2 * n,
        "cores_busy_one": cores_one, "cores_busy_two": cores_two,
        "contexts_per_second_one": n / starts_one, "contexts_per_second_two": 2 * n / starts_two,
    }  # fmt: skip


SECTIONS: dict[str, Section] = {
    "small": small, "giant": giant, "static": static, "failures": failures, "steadiness": steadiness, "memory": memory,
    "gpus": gpus,
}  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)} if values else {}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verifier", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("bench.json"), help="where the figures go (%(default)s)")
    most = ",".join(name for name in SECTIONS if name != "gpus")
    parser.add_argument("--only", default=most, help="sections, separated by commas (%(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: sections static and memory")
    parser.add_argument("--concurrency", type=int, default=16, help="candidates at once (%(default)s)")
    parser.add_argument("--verdicts", type=int, default=128, help="of the section `small` (%(default)s)")
    parser.add_argument("--memory-verdicts", type=int, default=2000, help="of the section `memory` (%(default)s)")
    parser.add_argument("--document", type=Path, help="a Markdown file to write the figures into, between its marks")
    parser.add_argument("--kernelbench", type=Path, help="a checkout of KernelBench to measure beside")
    options = parser.parse_args(arguments)
    unknown = set(options.only.split(",")) - set(SECTIONS)
    if unknown:
        parser.error(f"--only: no section {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    bench = Bench(options)
    report: dict[str, Any] = {
        "machine": bench.evaluator.environment.model_dump(),
        "options": {"concurrency": options.concurrency},
    }
    try:
        for name in options.only.split(","):
            report[name] = SECTIONS[name](bench)
            print(name, json.dumps(report[name], indent=1, default=str), flush=True)
            options.output.write_text(json.dumps(report, indent=1, default=str))
    finally:
        bench.evaluator.stop()
    if options.kernelbench:
        report["kernelbench"] = kernelbench.measure(options.kernelbench)
        print("kernelbench", json.dumps(report["kernelbench"], indent=1), flush=True)
        options.output.write_text(json.dumps(report, indent=1, default=str))
    if options.document:
        document.write(options.document, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
