"""`python -m tests.threats`: both suites through the verifier of this machine or of a Ray cluster, and two rates.

False accepts: attacks that got `ok` and should not have. False rejects: honest look-alikes that did not. One
line for each failure. Exit code: 0 none, 1 some or no verifier, 2 unusable arguments. Does not know how a
verdict is reached.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import NamedTuple

from kb_ray import cluster
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest
from kb_ray.errors import ConfigError, KbRayError
from kb_ray.records import Status, Verdict
from tests.threats.expect import undue_doubt
from tests.threats.record import Case, Device, Honest, Threat, honest, label, said, threats
from tests.threats.running import canary, complaints, request_for

Evaluate = Callable[[BenchRequest], Verdict]
ON_A_CLUSTER = 64
"""Cases handed to a pool at once: its own queue does the rest."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args(argv)
    address = options.address or os.environ.get("RAY_ADDRESS")
    # A cluster's device is not that of the machine this is typed on.
    seen = "cuda" if cluster.local_gpus() or (address and address != "local") else "cpu"
    device: Device = seen if options.device == "auto" else options.device
    cases = [case for case in [*threats(device), *honest(device)] if any(word in label(case) for word in options.only)]
    try:
        where = _on_cluster if address else _here
        with where(device, options.concurrency, options.workers, options.address) as evaluate:
            return _report(cases, evaluate, device, ON_A_CLUSTER if address else options.concurrency)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KbRayError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.threats", description=__doc__)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--concurrency", type=int, default=2, metavar="N", help="cases at once, on each worker")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="workers on the cluster; 0: one per GPU")
    parser.add_argument("--address", metavar="HOST:PORT", help="Ray head to join; RAY_ADDRESS counts too")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="cases whose id or name holds a TEXT")
    return parser


def _report(cases: Sequence[Case], evaluate: Evaluate, device: Device, at_once: int) -> int:
    """Runs the cases, prints failures as they come and the rates at the end; the exit code."""
    started = time.monotonic()
    wrong, failed, untrusted = {Threat: 0, Honest: 0}, 0, list[str]()
    with ThreadPoolExecutor(at_once) as threads:
        work = {threads.submit(_run, case, evaluate, device): case for case in cases}
        for done in as_completed(work):
            outcome = done.result()
            failed += bool(outcome.wrong)
            wrong[type(work[done])] += outcome.false
            untrusted += outcome.untrusted
            for line in outcome.wrong:
                print(line, flush=True)
    attacks = sum(isinstance(case, Threat) for case in cases)
    print(
        f"false accepts {wrong[Threat]}/{attacks}, false rejects {wrong[Honest]}/{len(cases) - attacks}; "
        f"{failed} cases failed ({device}, {time.monotonic() - started:.0f} s)"
    )
    if untrusted:
        # Without a GPU nothing is trusted; with one, a right kernel that is not trusted is never a reward.
        print(f"right, timed and not trusted, {len(untrusted)} of {len(cases) - attacks} honest ones:")
        print(*(f"  {line}" for line in sorted(untrusted)), sep="\n")
    return 1 if failed else 0


class Outcome(NamedTuple):
    """What is wrong with one case; whether its verdict is a false accept or a false reject; right and untrusted."""

    wrong: list[str]
    false: bool = False
    untrusted: tuple[str, ...] = ()


def _run(case: Case, evaluate: Evaluate, device: Device) -> Outcome:
    try:
        verdict = evaluate(request_for(case, device))
        if isinstance(case, Honest):
            found = case.complaint(verdict)
            if found is not None:
                return Outcome([f"{label(case)}: {found}"], false=True)
            undue = undue_doubt(label(case), verdict)
            doubted = () if verdict.trusted or not verdict.timed else (f"{label(case)}: {said(verdict)}",)
            return Outcome([f"{label(case)}: {undue}"] if undue else [], untrusted=doubted)
        found_all = complaints(case, verdict, evaluate(canary(device)))
    except (KbRayError, ValueError) as error:
        return Outcome([f"{label(case)}: no verdict: {' '.join(str(error).split())}"])
    return Outcome(found_all, false=verdict.status is Status.OK and case.complaint(verdict) is not None)


@contextmanager
def _here(device: Device, concurrency: int, workers: int, address: str | None) -> Iterator[Evaluate]:
    """Verdicts of an evaluator of this process's own."""
    evaluator = Evaluator(device=device, concurrency=concurrency, name=f"selftest-{os.getpid()}")
    try:
        yield evaluator.evaluate
    finally:
        evaluator.stop()


@contextmanager
def _on_cluster(device: Device, concurrency: int, workers: int, address: str | None) -> Iterator[Evaluate]:
    """Verdicts of a pool of workers on the cluster. The pool lives in an event loop of its own thread."""
    run_id = f"selftest-{uuid.uuid4().hex[:8]}"
    cluster.connect(run_id, address)
    # Only now: Ray wants its environment prepared before it is imported.
    from kb_ray.bench.pool import BenchPool

    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(loop.run_forever)
        pool = BenchPool(workers, concurrency, device, run_id)
        try:
            asyncio.run_coroutine_threadsafe(pool.start(), loop).result()
            yield lambda request: asyncio.run_coroutine_threadsafe(pool.evaluate(request), loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(pool.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            cluster.disconnect()


if __name__ == "__main__":
    sys.exit(main())
