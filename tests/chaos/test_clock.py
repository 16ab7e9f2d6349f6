"""A clock that jumps by an hour in mid-run: of the driver alone, or of its whole machine. System calls are told it."""

from __future__ import annotations

import mmap
import random
import shutil
import struct
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.chaos.erratic_model import ErraticModel, served
from tests.chaos.machine import own_processes, preloading
from tests.chaos.running import (
    PATIENCE_S,
    check_nothing_left,
    check_sound,
    command_lines,
    later,
    row_by_row,
    running,
    wait_for_rows_of_job,
)
from tests.fixtures_chaos import ONLY_IN_CHAOS
from tests.fixtures_head import ray_command, started_head, submit
from tests.fixtures_run import Command, make_workload
from tests.fixtures_s3 import S3Server

HOUR_S = 3600
_SHIFTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *shift;

__attribute__((constructor)) static void open_shift(void) {
    int file = open(SHIFT, O_RDONLY);
    void *page = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    shift = page == MAP_FAILED ? 0 : page;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, now);
    if (!failed && shift && which == CLOCK_REALTIME) now->tv_sec += *shift;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
"""


class Clock:
    """What a process with `env`, or with `preloaded` otherwise, reads as the time of day: ours and `shift` seconds."""

    def __init__(self, shift: Path, library: Path) -> None:
        with shift.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8)
        self.preloaded, self.env = library, {"LD_PRELOAD": str(library)}

    def jump(self, seconds: int) -> None:
        self._page[:8] = struct.pack("q", seconds)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the library that tells another time")
    source, library, shift = tmp_path / "shifted.c", tmp_path / "shifted.so", tmp_path / "shift"
    source.write_text(_SHIFTED)
    shift.write_bytes(struct.pack("q", 0))
    where = f'-DSHIFT="{shift}"'
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", where, "-o", library, source, "-ldl"], check=True)
    return Clock(shift, library)


def _told(clock: Clock) -> float:
    read = ["python3", "-c", "import time; print(time.time())"]
    return float(
        subprocess.run(read, env=clock.env | {"PATH": "/usr/bin:/bin"}, capture_output=True, check=True).stdout
    )


def test_the_clock_of_these_tests_does_jump(clock: Clock) -> None:
    before = _told(clock)
    clock.jump(HOUR_S)
    assert HOUR_S <= _told(clock) - before < HOUR_S + 600


@pytest.mark.parametrize("sign", [1, pytest.param(-1, marks=ONLY_IN_CHAOS)])
def test_a_clock_that_jumps_is_not_noticed(
    sign: int, draw: random.Random, command: Command, clock: Clock, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    with served(ErraticModel(draw, at_first=8)) as model:
        arguments = row_by_row(workload, output, url=model.url)
        with running(arguments, tmp_path / "log", command.env | clock.env) as run:
            run.wait_for_rows(output, draw.randint(1, 3))
            later(draw, 2.0)
            assert _has(run.process.pid, clock.preloaded)
            clock.jump(sign * HOUR_S)
            model.go_on()
            assert run.end() == 0, run.said
    check_sound(output, workload)
    check_nothing_left(output)


def _check_all_have(library: Path) -> None:
    """Ray's own processes, the driver and each process of the bench have the library loaded."""
    having = [line for pid, line in command_lines("").items() if _has(pid, library)]
    for part in ("gcs_server", "raylet", "dashboard", "kb_ray.generate", "ray::", "child.judge", "child.zygote"):
        assert any(part in line for line in having), (part, having)


def _has(pid: int, library: Path) -> bool:
    try:
        return str(library) in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


# Ray's own processes find no rest after the jump, and all takes minutes.
@ONLY_IN_CHAOS
def test_a_machine_whose_clock_jumps_finishes_its_job(draw: random.Random, clock: Clock, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 12), str(tmp_path / "out")
    (tmp_path / "etc").mkdir()
    # With its own processes, for Ray's workers whose clock has jumped do not see that their machine is gone.
    machine = [*own_processes(), *preloading(clock.preloaded, tmp_path / "etc")]
    with served(ErraticModel(draw, at_first=6)) as model, started_head(machine) as head:
        arguments = row_by_row(workload, output, url=model.url)
        submitted = submit(head, "jumped", arguments, "--no-wait")
        assert submitted.returncode == 0, submitted.stdout + submitted.stderr
        wait_for_rows_of_job(head, "jumped", output, draw.randint(1, 4))
        _check_all_have(clock.preloaded)
        later(draw, 2.0)
        clock.jump(draw.choice((1, -1)) * HOUR_S)
        model.go_on()
        said = ray_command(head, "job", "logs", "--follow", "jumped", timeout_s=PATIENCE_S).stdout
        assert "Job 'jumped' succeeded" in said, said
        check_sound(output, workload)
        check_nothing_left(output)


def test_on_s3_a_wrong_clock_holds_a_run_up_until_it_is_set_right(
    draw: random.Random, command: Command, clock: Clock, s3_server: S3Server, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    workload, output = make_workload(tmp_path, 12), f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    with served(ErraticModel(draw, at_first=6)) as model:
        arguments = row_by_row(workload, output, url=model.url, n_correctness=2)
        with running(arguments, tmp_path / "log", command.env | clock.env) as run:
            run.wait_for_rows(output, draw.randint(1, 4))
            clock.jump(draw.choice((1, -1)) * HOUR_S)
            model.go_on()
            run.wait_for_words("this machine's clock and the server's differ too much")
            later(draw, 10.0)
            clock.jump(0)
            assert run.end() == 0, run.said
    check_sound(output, workload)
    check_nothing_left(output)
