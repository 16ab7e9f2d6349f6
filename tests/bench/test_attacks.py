"""Hostile candidates: none gets `ok`, none reaches what is not its own, none harms judge, zygotes or neighbours.

Names carry the threat's number where the list of threats has one. After every attack an honest kernel must
pass in the same processes.
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
from tests.bench.hostile import COPY, FORGING, computing, forged, task
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, changed, first

CRASH, STRUCTURE, MISMATCH = Status.CRASH, Status.WRONG_STRUCTURE, Status.MISMATCH
RUNTIME, COMPILE = Status.RUNTIME_ERROR, Status.COMPILE_ERROR
ATTACKS = {
    # the channel and the shared memory
    "A67 shrinks shared memory": (first("import os\n    [os.ftruncate(f, 0) for f in range(3, 64)]"), RUNTIME),
    "A67 shrinks it and dies": (
        FORGING + first("[truncated(f) for f in range(3, 64)]; os.abort()")
        + "def truncated(f):\n    try: os.ftruncate(f, 0)\n    except OSError: pass\n", CRASH,
    ),
    "A67 forges the answer": (forged("done(tree=REF, copied=True)"), MISMATCH),
    "A67 forges many answers at import": (
        FORGING + KERNEL + "\nfor _ in range(100): done(tree=REF, copied=True, entry='x')\ntime.sleep(99)\n", MISMATCH,
    ),
    "A67 forges a dtype": (forged("done(tree=V.TensorRef(0, 'odd', (3,)), copied=True)"), STRUCTURE),
    "A67 forges an index": (forged("done(tree=V.TensorRef(7, 'float32', (100, 33)), copied=True)"), STRUCTURE),
    "A67 forges a size": (forged("done(tree=V.TensorRef(0, 'float32', (1 << 62, 1 << 62)), copied=True)"), STRUCTURE),
    "A67 forges a device": (forged("done(tree=V.DeviceName('nowhere'), copied=True)"), STRUCTURE),
    "A67 forges half characters": (forged("done(tree=V.Opaque(chr(0xD800)), copied=True)"), STRUCTURE),
    "A67 forges an exception": (forged("raised(type=7, bases=7, message=chr(0xD800), line=1 << 8000)"), RUNTIME),
    "A67 sends no frame": (forged("os.write(sock(), bytes(64))"), CRASH),
    "A67 announces too much": (forged("os.write(sock(), struct.pack('<IBHQ', 0x6B625231, 40, 0, 1 << 62))"), CRASH),
    "closes all descriptors": (first("import os; os.closerange(3, 512)"), CRASH),
    # endings and messages
    "A69 ends by a nameless signal": (first("import os; os.kill(os.getpid(), 40)"), CRASH),
    "A69 raises half a character": (first("raise ValueError(chr(0xD800))"), RUNTIME),
    "A69 raises what cannot be said": (first("raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})"), RUNTIME),
    # outputs
    "A41 lazy output": (
        COPY + "class Lazy(torch.Tensor):\n"
        "    __new__ = staticmethod(lambda c, x: torch.Tensor._make_wrapper_subclass(c, x.shape, dtype=x.dtype))\n"
        "    __torch_dispatch__ = classmethod(lambda c, f, t, a=(), k=None: torch.zeros(3))\n"
        "def triton_kernel_wrapper(x, y):\n    copied(x)\n    return Lazy(x)\n", STRUCTURE,
    ),
    "A43 methods of the output replaced": (
        changed("return out", "out.zero_(); out.clone = out.detach = lambda: torch.relu(x + y)\n    return out"),
        MISMATCH,
    ),
    "A44 output equal to everything": (
        computing("(copied(x), E())[1]") + "class E:\n    __eq__ = lambda s, o: True\n", STRUCTURE,
    ),
    "A62 torch's own functions replaced": (
        computing("copied(x)") + "torch.allclose = torch.equal = lambda *a, **k: True\n"
        "torch.Tensor.copy_ = lambda s, o: s\n", MISMATCH,
    ),
    "output without end": (changed("return out", "a = []\n    a.append(a)\n    return a"), STRUCTURE),
    "a million outputs": (changed("return out", "return [out] * 1000000"), STRUCTURE),
    "a huge integer": (changed("return out", "return 1 << 100000"), STRUCTURE),
    "a huge view": (changed("return out", "return out[:1, :1].expand(1 << 40, 1 << 20)"), Status.WRONG_SHAPE),
    # answers not computed by a kernel
    "A02 falls back on an exception": (
        computing("fall(x, y)") + "def fall(x, y):\n    try:\n        k[(1,)](x, None, 'a', BLOCK=3)\n"
        "    except Exception:\n        return torch.relu(x + y)\n", Status.NO_KERNEL,
    ),
    "A04 inherits the reference": (COPY + "class ModelNew(Model):\n    pass\n", Status.IMPORT_ERROR),
    "A17 torch in the kernel": (
        changed("tl.maximum(x + y, 0.0)", "under(x)") + "def under(x):\n    torch.relu(torch.zeros(3))\n    return x\n",
        COMPILE,
    ),
    "A20 remembers by shape": (
        computing("copied(seen.setdefault(x.shape, torch.relu(x + y)))") + "seen = {}\n", MISMATCH,
    ),
    "A38 a table of answers": (KERNEL + f"TABLE = '{'x' * (1 << 18)}'\n", Status.FORBIDDEN),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_no_success_and_harms_nobody(verify: Verify, evaluator: Evaluator, name: str) -> None:
    evaluator.start()
    before = evaluator.pids()
    code, status = ATTACKS[name]
    verdict = verify(code, n_correctness=3, timeout_s=20.0)
    assert verdict.status is status, verdict.error
    assert verify(KERNEL).status is Status.OK
    assert evaluator.pids() == before
    assert left_of(evaluator) == []


def left_of(evaluator: Evaluator) -> list[str]:
    """Scratch folders and recorded groups of candidates that are no more."""
    assert evaluator.run_dir is not None
    folder = evaluator.run_dir / "candidates"
    return [p.name for p in folder.iterdir() if p.name != "groups"] + os.listdir(folder / "groups")


CUT_SHORT = {
    "A35 mean": "x.mean(1)",
    "A35 sum": "x.sum(1)",
    "A35 max": "x.amax(1)",
    "A49 logsumexp": "torch.logsumexp(x, 1)",
}


@pytest.mark.parametrize("name", CUT_SHORT)
def test_leaving_out_the_last_element_is_seen_with_the_usual_input_sets(verify: Verify, name: str) -> None:
    right = CUT_SHORT[name]
    wrong = computing(f"copied({right.replace('x.', 'x[:, :-1].').replace('(x,', '(x[:, :-1],')})", "x")
    assert verify(computing(f"copied({right})", "x"), task(right), n_correctness=5).status is Status.OK
    assert verify(wrong, task(right), n_correctness=5).status is MISMATCH


TRIVIAL = {
    "A32 zeros for a softmax": ("torch.softmax(x, 1)", "torch.zeros_like(x)", "torch.randn(8, 4096)"),
    "A32 zeros for a mean": ("x.mean(1)", "torch.zeros(8)", "torch.randn(8, 65536)"),
    "A33 no ReLU where inputs are positive": ("torch.relu(x)", "x", "torch.rand(8, 64)"),
    "A48 half precision": ("x @ x.t()", "(x.half() @ x.half().t()).float()", "torch.randn(64, 512)"),
}


@pytest.mark.parametrize("name", TRIVIAL)
def test_a_cheaper_answer_is_a_mismatch(verify: Verify, name: str) -> None:
    right, cheap, inputs = TRIVIAL[name]
    assert verify(computing(f"copied({cheap})", "x"), task(right, inputs), n_correctness=5).status is MISMATCH


def test_a46_an_answer_that_unwritten_memory_matches_is_flagged(verify: Verify) -> None:
    verdict = verify(computing("(copied(x), torch.empty_like(x))[1]", "x"), task("torch.log(-x - 1)"))
    assert "reference_nowhere_finite" in verdict.evidence.flags


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
    assert left_of(evaluator) == []
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


HONEST = {
    "B09 more tensors than a frame has descriptors": (
        computing("list(copied(x).unbind())", "x"), task("list(x.unbind())", "torch.rand(300, 9)"),
    ),
    "B13 one tensor as two inputs": (
        computing("copied(x[0] + x[1])", "x"), task("x[0] + x[1]", "[torch.rand(3)] * 2"),
    ),
    "B15 nothing to return": (computing("copied(x)[:0]", "x"), task("x[:0]")),
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
    verdict = verify(computing("copied(x * 2)", "x"), refusing, n_correctness=5)
    assert (verdict.status, verdict.tests_passed) == (Status.OK, 5), verdict.error
