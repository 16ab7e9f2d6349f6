"""What a candidate tries to reach beyond its own process: each try of docs/security.md, refused inside and not outside.

One text of tries runs in a plain process, where it must get at everything, and as a candidate's code, where it must
be refused each: a target that is not there, or that fails, is not refused. What another candidate wrote in its scratch
folder is a real one's, which hangs meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.sweep import base_dir
from tests.fixtures_bench import Verify, first

ROOT = Path(__file__).parents[2]
SECRET = "kbsecret"
TRIES = '''
import os, sys
import numpy.ctypeslib as ctypeslib
c = ctypeslib.ctypes
libc = c.CDLL(None, use_errno=True)
# EPERM and EACCES: the kernel answers with the one where a call is not allowed, with the other where a file is not.
CALL, FILE, EITHER = (1,), (13,), (1, 13)

def module(name):
    return next(m for n, m in list(sys.modules.items()) if n == name)

def text(path):
    with open(path, "rb") as file:
        assert b"kbsecret" in file.read()

def filled(path):
    with open(path, "rb") as file:
        assert file.read()

def process(pid, what):
    return os.path.join(os.sep, "proc", str(pid), what)

def dialled(family, address):
    s = module("socket").socket(family, 1)
    s.settimeout(0.3)
    try:
        s.connect(address)
    except PermissionError:
        raise
    except OSError:
        pass  # the packet left, and nobody answered

def spoken(family, address):
    module("socket").socket(family, 1).connect(address)

def datagram(port):
    module("socket").socket(2, 2).sendto(b"x", ("127.0.0.1", port))

def peeked(pid):
    """A word at the first address that the process has mapped, as a debugger reads it."""
    with open(process(pid, "maps")) as maps:
        address = int(maps.readline().split("-")[0], 16)
    class Piece(c.Structure):
        _fields_ = [("base", c.c_void_p), ("length", c.c_size_t)]
    room = c.create_string_buffer(8)
    ours, theirs = Piece(c.cast(room, c.c_void_p), 8), Piece(address, 8)
    if libc.process_vm_readv(pid, c.byref(ours), 1, c.byref(theirs), 1, 0) != 8:
        raise PermissionError(c.get_errno(), "process_vm_readv")

def seized(pid):
    """PTRACE_SEIZE stops nobody; the end of this process lets go."""
    if libc.ptrace(0x4206, pid, None, None) != 0:
        raise PermissionError(c.get_errno(), "ptrace")

def memory(pid):
    with open(process(pid, "maps")) as maps:
        address = int(maps.readline().split("-")[0], 16)
    with open(process(pid, "mem"), "rb", 0) as file:
        file.seek(address)
        file.read(8)

def watched(path):
    notices = libc.inotify_init1(0)
    if notices < 0 or libc.inotify_add_watch(notices, path.encode(), 0xFFF) < 0:
        raise PermissionError(c.get_errno(), "inotify")

def written(path):
    with open(path, "ab") as file:
        file.write(b"")

def candidates(g):
    return os.path.dirname(os.path.dirname(g["scratch"]))

def reached(g):
    tries = {
        "the network": (EITHER, lambda: spoken(2, ("127.0.0.1", g["tcp"]))),
        "the network, by datagram": (CALL, lambda: datagram(g["tcp"])),
        "the cloud's metadata address": (EITHER, lambda: dialled(2, ("169.254.169.254", 80))),
        "a socket of Ray's": (CALL, lambda: spoken(1, g["socket"])),
        "Ray's token": (FILE, lambda: text(g["token"])),
        "a credentials file": (FILE, lambda: text(g["credentials"])),
        "the environment of another process": (FILE, lambda: text(process(g["victim"], "environ"))),
        "the command line of another process": (FILE, lambda: text(process(g["victim"], "cmdline"))),
        "the memory of another process": (FILE, lambda: memory(g["victim"])),
        "the same, as a debugger": (EITHER, lambda: peeked(g["victim"])),
        "tracing another process": (CALL, lambda: seized(g["victim"])),
        "a signal to another process": (CALL, lambda: os.kill(g["victim"], 0)),
        "the limits of another process": (CALL, lambda: module("resource").prlimit(g["victim"], 7)),
        "files that another process has open": (FILE, lambda: os.readlink(process(g["victim"], "fd/1"))),
        "the judge's memory": (FILE, lambda: memory(g["judge"])),
        "the judge's files": (FILE, lambda: os.readlink(process(g["judge"], "fd/1"))),
        "the worker's environment": (FILE, lambda: filled(process(g["worker"], "environ"))),
        "another candidate's scratch folder": (FILE, lambda: text(g["scratch"])),
        "the names of other candidates' folders": (FILE, lambda: os.listdir(candidates(g))),
        "news of other candidates' files": (CALL, lambda: watched(candidates(g))),
        "reading the trace store": (FILE, lambda: text(g["trace"])),
        "writing into the trace store": (FILE, lambda: written(g["trace"])),
        "a new file beside the store": (FILE, lambda: written(g["trace"] + ".new")),
        "Ray's shared memory": (FILE, lambda: text(g["shared"])),
        "the code of this project, with its references": (FILE, lambda: os.listdir(g["code"])),
    }
    found, refused = [], {}
    for name, (refusals, attempt) in tries.items():
        try:
            attempt()
            found.append(name)
        except OSError as error:
            if error.errno in refusals:
                refused[name] = error.errno
            else:
                found.append(f"{name}: it fails, and is not refused: {error!r}")
        except Exception as error:
            found.append(f"{name}: the try itself is wrong: {error!r}")
    return found, refused
'''
VICTIM = "import sys, time; print(flush=True); time.sleep(600)"
HOLDS = first(
    f"import os, time; open('kept', 'w').write('{SECRET}')\n"
    "    while not os.path.exists('enough'):\n"
    "        time.sleep(0.05)"
)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, evaluator: Evaluator) -> Iterator[dict[str, Any]]:
    """Where things to be reached are, each of them there."""
    folder = tmp_path_factory.mktemp("reach")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    files = {name: folder / name for name in ("token", "credentials", "trace")}
    shared = Path("/dev/shm") / f"kb_reach_{folder.name}_{time.monotonic_ns()}"
    for path in (*files.values(), shared):
        path.write_text(SECRET)
        path.chmod(0o666)
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, SECRET], env={"KB_TOKEN": SECRET}, stdout=subprocess.PIPE)
    assert victim.stdout is not None
    victim.stdout.readline()
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen(64)
        unix.bind(str(folder / "socket"))
        unix.listen(64)
        (folder / "socket").chmod(0o777)
        pids = evaluator.pids()
        yield {
            **{name: str(path) for name, path in files.items()}, "shared": str(shared), "victim": victim.pid,
            "judge": pids["judge"], "worker": os.getpid(), "tcp": tcp.getsockname()[1],
            "socket": str(folder / "socket"), "code": str(ROOT / "kb_ray" / "tasks" / "builtin"),
        }  # fmt: skip
    victim.kill()
    victim.wait()
    shared.unlink()


@pytest.fixture(scope="module")
def scratch(verify: Verify) -> Iterator[str]:
    """A file that a candidate wrote in its scratch folder, which lives as long as this."""
    running = threading.Thread(target=lambda: verify(HOLDS, n_correctness=1, timeout_s=600.0))
    running.start()

    def kept() -> list[Path]:
        return list(base_dir().glob("tests-*/candidates/*/kept"))

    end = time.monotonic() + 120
    while not (found := kept()) and time.monotonic() < end:
        time.sleep(0.05)
    yield str(found[0])
    while running.is_alive():
        for path in kept():
            with suppress(FileNotFoundError):
                path.with_name("enough").touch()
        running.join(0.2)


def outside(given: dict[str, Any]) -> tuple[list[str], dict[str, int]]:
    """(what a plain process of this user reached or failed at, what it was refused)."""
    code = f"import json, resource, socket\n{TRIES}\nprint(json.dumps(reached({given!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found, refused = json.loads(done.stdout)
    return found, refused


def test_a_candidate_reaches_nothing_of_what_a_plain_process_reaches(
    verify: Verify, given: dict[str, Any], scratch: str
) -> None:
    given = given | {"scratch": scratch}
    found, refused = outside(given)
    assert refused == {}, "a try that is refused outside says nothing about the sandbox"
    assert set(found) == set(documented())
    verdict = verify(TRIES + first(f"raise ValueError(reached({given!r})[0])"), n_correctness=1, timeout_s=20.0)
    assert verdict.error is not None
    assert verdict.error.message.endswith("[]"), verdict.error.message


def test_a_target_that_is_not_there_is_not_refused(tmp_path: Path) -> None:
    with socket.socket() as tcp, subprocess.Popen([sys.executable, "-c", ""]) as ended:
        tcp.bind(("127.0.0.1", 0))  # nobody listens there
        ended.wait()
        names = ("token", "credentials", "trace", "shared", "socket", "code", "scratch")
        gone = {name: str(tmp_path / "gone" / "below" / name) for name in names}
        processes = dict.fromkeys(("victim", "judge", "worker"), ended.pid)
        found, refused = outside({**gone, **processes, "tcp": tcp.getsockname()[1]})
    assert refused == {}
    failed = {name for name, told, _ in (line.partition(": it fails, and is not refused") for line in found) if told}
    # A packet leaves whether somebody takes it or not.
    assert set(documented()) - failed <= {"the network, by datagram", "the cloud's metadata address"}


def documented() -> list[str]:
    """The tries that docs/security.md lists as refused."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text.partition("## Tried from inside")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+?) \| refused", table, re.MULTILINE)
