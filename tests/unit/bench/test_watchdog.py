"""Bounds as numbers, and what /proc shows of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kb_ray.bench.child.cgroup import Cgroup, find, own_cgroup
from kb_ray.bench.child.watchdog import Bounds, Excess, Usage, Watchdog, excess, group_processes, measure

MIB = 1 << 20
BOUNDS = Bounds(memory_bytes=1 << 30, tasks=10, scratch_bytes=1 << 30, scratch_files=100)


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (Usage(1 << 30, 10, 1 << 30, 100), None),
        (Usage(memory_bytes=3 << 29), Excess("memory", "1.5 GiB of memory in use, 1 allowed")),
        (Usage(tasks=11), Excess("tasks", "11 processes and threads at once, 10 allowed")),
        (Usage(scratch_bytes=5 << 29), Excess("scratch", "2.5 GiB of temporary files, 1 allowed")),
        (Usage(scratch_files=101), Excess("scratch", "over 100 temporary files at once")),
        (Usage(2 << 30, 99, 2 << 30, 999), Excess("memory", "2.0 GiB of memory in use, 1 allowed")),
    ],
)
def test_what_is_over_a_bound_is_said_with_both_numbers(usage: Usage, told: Excess | None) -> None:
    assert excess(usage, BOUNDS) == told


class Group:
    """A real process group, as the watchdog sees a child."""

    def __init__(self, code: str, scratch: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{code}\nprint('ready', flush=True)\nimport time; time.sleep(60)"],
            stdout=subprocess.PIPE, start_new_session=True, cwd=scratch,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        self.pid, self.scratch, self.sampled, self.lent_bytes = self.process.pid, scratch, True, 0
        self.excess: Excess | None = None

    def usage(self) -> Usage:
        return measure(self, group_processes(os.getpid())[self.pid], 0, True)


@contextmanager
def group(code: str, scratch: Path) -> Iterator[Group]:
    started = Group(code, scratch)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


FORK = "if os.fork() == 0: time.sleep(60); os._exit(0)"
HELD = {
    "anonymous": "held = b'x' * (64 << 20)",
    "shared": "import mmap; m = mmap.mmap(-1, 64 << 20); m[:] = b'x' * (64 << 20)",
    "unmapped": "import os; f = os.memfd_create('m'); os.truncate(f, 64 << 20)\n"
    "for _ in range(64): os.write(f, b'x' * (1 << 20))",
}


@pytest.mark.parametrize("name", HELD)
def test_memory_counts_however_it_is_held(tmp_path: Path, name: str) -> None:
    with group("pass", tmp_path) as idle, group(HELD[name], tmp_path) as holding:
        assert 60 * MIB < holding.usage().memory_bytes - idle.usage().memory_bytes < 80 * MIB


def test_threads_and_processes_count_alike(tmp_path: Path) -> None:
    code = "import os, threading, time\nif os.fork() == 0: time.sleep(60)\n" + (
        "[threading.Thread(target=time.sleep, args=(60,), daemon=True).start() for _ in range(5)]"
    )
    with group(code, tmp_path) as crowd:
        assert crowd.usage().tasks == 7
        os.killpg(crowd.pid, 9)


def test_files_count_with_and_without_a_name(tmp_path: Path) -> None:
    code = (
        "import os\nos.mkdir('d')\n[open(f'd/{i}', 'wb').write(b'x' * (1 << 20)) for i in range(4)]\n"
        "f = open('gone', 'wb', 0); os.unlink('gone'); f.write(b'x' * (8 << 20))"
    )
    with group(code, tmp_path) as writer:
        usage = writer.usage()
    assert usage.scratch_files == 5
    assert 12 * MIB <= usage.scratch_bytes < 13 * MIB


def test_only_the_group_that_is_over_its_bounds_is_killed(tmp_path: Path) -> None:
    with (
        group("pass", tmp_path) as idle,
        group(f"import os, time\nfor _ in range(12):\n{' ' * 4}{FORK}", tmp_path) as crowd,
    ):
        dog = Watchdog(os.getpid(), BOUNDS)
        dog.watch(idle)
        dog.watch(crowd)
        crowd.process.wait(5)
        dog.forget(idle.pid)
        assert crowd.excess == Excess("tasks", "13 processes and threads at once, 10 allowed")
        assert (idle.process.poll(), idle.excess) == (None, None)


MOUNTS = """25 1 0:22 / /sys rw - sysfs sysfs rw
30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw
"""


@pytest.mark.parametrize(
    ("cgroup", "mounts", "path"),
    [
        ("0::/\n", MOUNTS, "/sys/fs/cgroup"),
        ("0::/user.slice/a\n", MOUNTS, "/sys/fs/cgroup/user.slice/a"),
        ("4:memory:/m\n0::/a\n", MOUNTS.replace("/ /sys/fs/cgroup", "/a /sys/fs/cgroup"), "/sys/fs/cgroup"),
        ("0::/b\n", MOUNTS.replace("/ /sys/fs/cgroup", "/a /sys/fs/cgroup"), None),
        ("4:memory:/m\n", MOUNTS, None),
        ("0::/\n", "25 1 0:22 / /sys rw - sysfs sysfs rw\n", None),
    ],
)
def test_the_own_cgroup_is_found_where_it_is_mounted(cgroup: str, mounts: str, path: str | None) -> None:
    assert own_cgroup(cgroup, mounts) == (None if path is None else Path(path))


def test_a_real_cgroup_ends_all_that_was_born_in_it_and_goes(tmp_path: Path) -> None:
    folder = find(needed=())
    if folder is None:
        pytest.skip("no cgroup v2 folder can be made here")
    try:
        with group("import os, time\nif os.fork() == 0: os.setsid(); time.sleep(60)", tmp_path) as first:
            cgroup = Cgroup(folder / "c1")
            cgroup.add(first.pid)
            with pytest.raises(OSError, match="busy"):
                folder.rmdir()
            cgroup.kill()
            first.process.wait(5)
            assert cgroup.remove()
            assert not cgroup.path.exists()
    finally:
        folder.rmdir()
