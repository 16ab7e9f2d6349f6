"""Bounds on real sandboxed processes: whoever goes over one is ended, told why, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kb_ray.bench import sandbox
from kb_ray.bench.child.blame import blame_exception
from kb_ray.bench.child.children import Child, refs_of
from kb_ray.bench.child.endings import Died, Ending, Raised, TimedOut, explain
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Channel, Kind
from kb_ray.bench.child.health import canary_passes
from kb_ray.bench.child.watchdog import Bounds, Excess, group_processes
from kb_ray.bench.host import Evaluator
from kb_ray.bench.level import level
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.sweep import claim, remove
from kb_ray.records import Status
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, first

MIB = 1 << 20
BOUNDS = Bounds(memory_bytes=256 * MIB, tasks=40, scratch_bytes=64 * MIB, scratch_files=400)
SNEAK = """
import mmap, os, signal, sys, threading, time
fork = next(v for k, v in vars(os).items() if k[::-1] == "krof")
def hold():
    time.sleep(60)
"""
"""Past the static rules, which know `os.fork` in every ordinary spelling."""


@pytest.fixture(scope="module", params=["own uid", "shared uid"])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    """A real zygote; its children have a uid of their own, or as on a GPU the judge's."""
    patch = pytest.MonkeyPatch()
    if request.param == "shared uid":
        patch.setattr(sandbox, "separate_uid", lambda: None)
    elif sandbox.separate_uid() is None:
        pytest.skip("no uid to be had: not root, or the interpreter is not open to others")
    folder = claim("isolation")
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {json.dumps(sys.path)}; from kb_ray.bench.child.zygote "
         f"import main; main({theirs.fileno()}, {os.getpid()}, False)"],
        pass_fds=[theirs.fileno()], cwd="/", env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    theirs.close()
    yield Zygote(Channel(ours), False, folder / "candidates", None, None, BOUNDS)
    patch.undo()
    process.kill()
    process.wait()
    remove(folder)


def load(child: Child, code: str, timeout_s: float = 30.0) -> None:
    request = {"program": "p", "role": "candidate", "code": SNEAK + code, "style": "function"}
    child.ask(Kind.LOAD, request, timeout_s)


MEMORY = {
    "many processes": "for _ in range(5):\n    if fork() == 0:\n        held = b'x' * (100 << 20); hold()\nhold()\n",
    "shared pages": "for _ in range(5):\n    if fork() == 0:\n        m = mmap.mmap(-1, 100 << 20)\n"
    "        for o in range(0, 100 << 20, 1 << 20): m[o : o + (1 << 20)] = bytes(1 << 20)\n        hold()\nhold()\n",
    "one process": "held = [b'x' * (1 << 20) for _ in range(400)]; hold()\n",
}
OTHER = {
    "fork bomb": ("while True:\n    try: fork()\n    except OSError: pass\n", "processes and threads at once"),
    "threads": ("for _ in range(60): threading.Thread(target=hold, daemon=True).start()\nhold()\n", "threads at once"),
    "many files": ("for n in range(1000): open(f'f{n}', 'w')\nhold()\n", "over 400 temporary files"),
    "large files": ("for n in range(9): open(f'g{n}', 'wb').write(bytes(10 << 20))\nhold()\n", "of temporary files"),
    "files without a name": (
        "kept = []\nfor n in range(9):\n    kept.append(open('g', 'wb', 0)); os.unlink('g')\n"
        "    kept[-1].write(bytes(10 << 20))\nhold()\n", "of temporary files",
    ),
}  # fmt: skip


def nothing_left(zygote: Zygote, child: Child) -> bool:
    end = time.monotonic() + 60
    while group_processes(zygote.pid).get(child.pid) and time.monotonic() < end:
        time.sleep(0.05)
    groups = os.listdir(zygote.folder / "groups")
    return child.pid not in group_processes(zygote.pid) and groups == [] and not child.scratch.exists()


@pytest.mark.parametrize("name", MEMORY)
def test_memory_over_the_bound_is_told_as_running_out_of_memory(zygote: Zygote, name: str) -> None:
    child = zygote.spawn()
    with pytest.raises(Raised, match=r"of memory in use, 0\.25 allowed") as raised:
        load(child, MEMORY[name])
    assert raised.value.info["type"] == "MemoryError"
    child.kill()
    assert nothing_left(zygote, child)
    assert canary_passes(zygote, contextlib.nullcontext) is None


@pytest.mark.parametrize("name", OTHER)
def test_too_many_processes_or_files_end_with_a_line_that_says_so(zygote: Zygote, name: str) -> None:
    code, told = OTHER[name]
    child = zygote.spawn()
    with pytest.raises(Died) as died:
        load(child, code)
    assert told in died.value.log
    child.kill()
    assert nothing_left(zygote, child)
    assert canary_passes(zygote, contextlib.nullcontext) is None


def test_a_neighbour_of_one_that_goes_over_its_bounds_is_left_alone(zygote: Zygote) -> None:
    quiet, loud = zygote.spawn(), zygote.spawn()
    load(quiet, "def triton_kernel_wrapper(x): return x\n")
    with pytest.raises(Died):
        load(loud, OTHER["threads"][0])
    loud.kill()
    load(quiet, "def triton_kernel_wrapper(x): return x\n")
    quiet.kill()
    assert zygote.left == []


def test_what_the_judge_lends_does_not_count_as_the_childs(zygote: Zygote) -> None:
    child = zygote.spawn()
    lent = [torch.ones(100 * MIB // 4) for _ in range(4)]
    child.put("lent", list(refs_of(lent)), lent, 30)
    load(child, "import torch\ndef triton_kernel_wrapper(x): return x\n")
    time.sleep(1)
    assert child.excess is None
    child.free(["lent"], 30)
    child.kill()


def test_a_stopped_group_is_killed_all_the_same(zygote: Zygote) -> None:
    child = zygote.spawn()
    child.pause()
    with pytest.raises(TimedOut):
        load(child, "", timeout_s=0.5)
    child.kill()
    assert nothing_left(zygote, child)


SURVIVED = {
    "descriptors": ("k = []\n    while True: k.append(os.open('/dev/null', 0))", Status.RUNTIME_ERROR),
    "blocked signals": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n    time.sleep(60)", Status.TIMEOUT,
    ),
    "sleeping threads": (
        "[threading.Thread(target=hold).start() for _ in range(50)]; raise SystemExit", Status.RUNTIME_ERROR,
    ),
    "a daemon": (
        "if fork() == 0:\n        if fork() == 0: hold()\n        os._exit(0)\n    os.wait(); os.abort()", Status.CRASH,
    ),
    "a daemon of one that passes": ("if fork() == 0: hold()", Status.OK),
}  # fmt: skip


@pytest.mark.parametrize("name", SURVIVED)
def test_nothing_of_an_abuse_outlives_its_verdict(verify: Verify, evaluator: Evaluator, name: str) -> None:
    verify(KERNEL)
    before = evaluator.pids()
    statement, status = SURVIVED[name]
    verdict = verify(SNEAK + first(statement), n_correctness=1, timeout_s=3.0)
    assert verdict.status is status, verdict.error
    assert group_processes(before["candidates"]) == {}
    assert verify(KERNEL).status is Status.OK
    assert evaluator.pids() == before


def test_a_gigabyte_of_output_is_read_and_forgotten(verify: Verify, evaluator: Evaluator) -> None:
    verify(KERNEL)
    before = resident(evaluator.pids()["judge"])
    flood = first("b = bytes(1 << 20)\n    for _ in range(1024): os.write(1, b)")
    assert verify("import os\n" + flood, n_correctness=1).status is Status.OK
    assert resident(evaluator.pids()["judge"]) - before < 32 * MIB


def test_the_level_says_what_bounds_a_candidate(verify: Verify) -> None:
    said = verify(KERNEL).evidence.sandbox_level
    assert said.rpartition("+")[2] in ("cgroup", "watchdog")
    assert level(cuda=False) == said, "beforehand, as the doctor shows it"


def test_what_was_killed_for_its_memory_is_told_to_the_model_as_out_of_memory() -> None:
    ending = explain(9, Excess("memory", "9.0 GiB of memory in use, 8 allowed"), False, "")
    assert isinstance(ending, Raised)
    status, _, error = blame_exception(ending.info, "call", "", False)
    assert (status, error.category) == (Status.OOM, "MEMORY ERROR")
    assert "9.0 GiB" in error.message


def test_a_death_is_answered_within_a_second_and_a_hang_within_one_of_its_timeout(verify: Verify) -> None:
    verify(KERNEL)
    verdict = verify("import os, time\n" + first("print('died', time.time(), flush=True); os.abort()"))
    answered = time.time()
    assert verdict.status is Status.CRASH
    assert verdict.error is not None
    assert answered - float(verdict.error.detail.rpartition("died ")[2].split()[0]) < 1
    started = time.monotonic()
    assert verify("import time\n" + first("time.sleep(60)"), timeout_s=2.0).status is Status.TIMEOUT
    assert time.monotonic() - started < 2 + 1


STATIC = {Status.SYNTAX_ERROR: "def f(:", Status.NO_KERNEL: "", Status.FORBIDDEN: first("import os; os.fork()")}


@pytest.mark.parametrize("status", STATIC)
def test_what_the_source_decides_takes_milliseconds_and_no_process(status: Status) -> None:
    untouched = Evaluator(device="cpu", name="static")
    request = BenchRequest(request_id="s", task=ADD_RELU, kernel_code=STATIC[status])
    best = 1.0
    for _ in range(5):
        started = time.perf_counter()
        assert untouched.evaluate(request).status is status
        best = min(best, time.perf_counter() - started)
    assert best < 0.05
    assert untouched.pids() == {}


def test_an_ending_by_another_signal_is_not_taken_for_one_by_sigkill() -> None:
    assert Ending(status=9).killed
    assert not any(Ending(status=status).killed for status in (None, 6, 9 << 8))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
