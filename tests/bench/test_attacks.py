"""Hostile and merely odd candidates that need more than a verdict to be judged: files, sockets, clocks beside it.

Attacks that a verdict alone shows are cases of tests/threats. Names carry the row of the list of threats
where there is one.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

import kb_ray
from kb_ray.bench.host import Evaluator
from kb_ray.records import Status, Task, TensorSpec
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, changed, first
from tests.threats.pieces import COPY, FORGING, task
from tests.threats.running import left_behind


def test_a74_to_a76_nothing_outside_can_be_read_changed_or_reached(verify: Verify, tmp_path: Path) -> None:
    secret, server = tmp_path / "token", socket.socket(socket.AF_UNIX)
    secret.write_text("secret")
    secret.chmod(0o640)
    modified = secret.stat().st_mtime_ns
    server.bind(str(tmp_path / "s"))
    server.listen()
    own = Path(kb_ray.__file__).parent
    files = [secret, own / "tasks/builtin/level1/add_relu.py", own.parent / "pyproject.toml", own / "errors.py"]
    probe = f"""
import os, sys
import numpy.ctypeslib as ctypeslib
c = ctypeslib.ctypes
libc = c.CDLL(None, use_errno=True)
module = lambda name: next(m for n, m in list(sys.modules.items()) if n == name)
def call(function, *arguments):
    if getattr(libc, function)(*arguments) < 0:
        raise OSError(c.get_errno(), function)
def process(*parts):
    return os.path.join(os.sep, "proc", *map(str, parts))
PROBES = {{
    "environment of the parent": lambda: open(process(os.getppid(), "environ")),
    "memory of the parent": lambda: open(process(os.getppid(), "mem")),
    "devices": lambda: os.listdir("/dev"),
    "temporary files": lambda: os.listdir("/tmp"),
    "other scratch folders": lambda: os.listdir(".."),
    "limits of the parent": lambda: module("resource").prlimit(os.getppid(), 7, (3, 3)),
    "signal to the parent": lambda: os.kill(os.getppid(), 0),
    "owner": lambda: os.chown({str(secret)!r}, 1, 1),
    "unix socket": lambda: module("socket").socket(1).connect({str(tmp_path / "s")!r}),
    "inet socket": lambda: module("socket").socket(2),
    "shared memory that stays": lambda: call("shmget", 0x6B62, 4096, 0o1600),
    "semaphores that stay": lambda: call("semget", 0x6B62, 1, 0o1600),
    "queue that stays": lambda: call("msgget", 0x6B62, 0o1600),
    "memory beyond the limit": lambda: os.memfd_create("m"),
    "a session of its own": os.setsid,
}} | {{p: lambda p=p: open(p) for p in {[str(p) for p in files]!r}}}
def leaks():
    os.chmod({str(secret)!r}, 0o777)
    os.utime({str(secret)!r}, (1, 1))
    for name, run in PROBES.items():
        try:
            run()
            yield name
        except OSError:
            pass
"""
    try:
        verdict = verify(probe + first("raise ValueError(list(leaks()))"))
    finally:
        server.close()
    assert verdict.error is not None
    assert verdict.error.message == "ValueError: []"
    assert (secret.stat().st_mode & 0o777, secret.stat().st_mtime_ns) == (0o640, modified)
    assert verify(KERNEL).status is Status.OK


LITTER = {
    "folders deeper than recursion": "for _ in range(1200): os.mkdir('d'); os.chdir('d')",
    "folders closed to everybody": "os.makedirs('a/b', exist_ok=True); open('a/b/f', 'w'); os.mkdir(str(id(x)), 0)",
    "links to outside": "os.symlink('/', str(id(out)))",
}


@pytest.mark.parametrize("name", LITTER)
def test_a74_whatever_is_left_in_the_scratch_folder_goes(verify: Verify, evaluator: Evaluator, name: str) -> None:
    code = changed("    return out", f"    import os\n    {LITTER[name]}\n    return out")
    assert verify(code, n_correctness=1).status is Status.OK
    assert left_behind(evaluator) == []
    assert verify(KERNEL).status is Status.OK


def test_a_candidate_that_reads_nothing_is_timed_out(verify: Verify) -> None:
    large = task("torch.relu(x[0])", "[torch.randn(4), ['abcdefgh' * 8] * 20000]")
    deaf = FORGING + KERNEL + "\nfor _ in range(100): done(tree=None, copied=True, entry='x')\ntime.sleep(99)\n"
    started = time.monotonic()
    assert verify(deaf, large, timeout_s=3.0).status is Status.TIMEOUT
    assert time.monotonic() - started < 20
    assert verify(KERNEL).status is Status.OK


def test_a_closed_log_does_not_keep_the_judge_busy(verify: Verify, evaluator: Evaluator) -> None:
    verify(KERNEL)
    before = processor_seconds(evaluator.pids()["judge"])
    quiet = first("import os, time\n    os.dup2(os.open('/dev/zero', 0), 1); os.dup2(1, 2); time.sleep(2)")
    assert verify(quiet, n_correctness=1).status is Status.OK
    assert processor_seconds(evaluator.pids()["judge"]) - before < 1


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


DOUBLE = COPY.replace("tl.load(a + o, mask=m), mask=m", "tl.load(a + o, mask=m) * 2, mask=m")


def doubling(expression: str) -> str:
    """A candidate that returns `expression`, in which `copied` doubles."""
    return f"{DOUBLE}def triton_kernel_wrapper(x):\n    return {expression}\n"


HONEST = {
    "B09 more tensors than a frame has descriptors": (
        doubling("list(copied(x).unbind())"), task("list((x * 2).unbind())", "torch.rand(300, 9)"),
    ),
    "B13 one tensor as two inputs": (
        doubling("copied(x[0])"), task("x[0] + x[1]", "[torch.rand(3)] * 2"),
    ),
    "B15 nothing to return": (doubling("copied(x)[:0]"), task("x[:0]")),
    "B23 byte order mark and CRLF": ("\ufeff" + ("# – “quotes”\n" + KERNEL).replace("\n", "\r\n"), ADD_RELU),
    "B27 prints and a main block": (KERNEL + "print(1)\nif __name__ == '__main__':\n    raise SystemExit\n", ADD_RELU),
    "B30 a parameter as output": (changed("return out", "return torch.nn.Parameter(out)"), ADD_RELU),
    "temporary files": (
        first("import tempfile, shutil\n    with tempfile.TemporaryDirectory() as d: shutil.copy(__file__, d)"),
        ADD_RELU,
    ),
    "threads and an event loop": (
        first("import asyncio, threading\n    threading.Thread(target=print).start()\n"
              "    asyncio.run(asyncio.sleep(0))"),
        ADD_RELU,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_passes(verify: Verify, name: str) -> None:
    code, wanted = HONEST[name]
    verdict = verify(code, wanted, n_correctness=5)
    assert verdict.status is Status.OK, verdict.error


def test_a_family_that_the_reference_refuses_is_replaced_by_a_draw_that_fits(verify: Verify) -> None:
    refusing = Task(
        task_id="folder/refusing", source="folder", name="refusing", style="function", entry_point="reference_impl",
        reference_code="def reference_impl(x):\n    assert float(x.abs().max()) < 10\n    return x * 2\n",
        input_shapes={"x": TensorSpec(shape=(64, 64))},
    )  # fmt: skip
    verdict = verify(doubling("copied(x)"), refusing, n_correctness=5)
    assert (verdict.status, verdict.tests_passed) == (Status.OK, 5), verdict.error
