"""A clock that jumps by an hour in mid-run. The driver's own system calls are told another time."""

from __future__ import annotations

import mmap
import random
import shutil
import struct
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.chaos.running import check_nothing_left, check_sound, later, running
from tests.fixtures_run import Command, make_workload
from tests.fixtures_s3 import S3Server

HOUR_S = 3600
_SHIFTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *shift;

__attribute__((constructor)) static void open_shift(void) {
    int file = open(getenv("CLOCK_SHIFT"), O_RDONLY);
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
    """What a process with `env` reads as the time of day: ours and `shift` seconds."""

    def __init__(self, folder: Path, library: Path) -> None:
        path = folder / "shift"
        path.write_bytes(struct.pack("q", 0))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(path)}

    def jump(self, seconds: int) -> None:
        self._page[:8] = struct.pack("q", seconds)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the library that tells another time")
    (tmp_path / "shifted.c").write_text(_SHIFTED)
    library = tmp_path / "shifted.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "shifted.c", "-ldl"], check=True)
    return Clock(tmp_path, library)


def _told(clock: Clock) -> float:
    read = ["python3", "-c", "import time; print(time.time())"]
    return float(
        subprocess.run(read, env=clock.env | {"PATH": "/usr/bin:/bin"}, capture_output=True, check=True).stdout
    )


def test_the_clock_of_these_tests_does_jump(clock: Clock) -> None:
    before = _told(clock)
    clock.jump(HOUR_S)
    assert HOUR_S <= _told(clock) - before < HOUR_S + 600


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_jumps_is_not_noticed(
    sign: int, draw: random.Random, command: Command, clock: Clock, tmp_path: Path
) -> None:
    workload, output = make_workload(tmp_path, 8), str(tmp_path / "out")
    arguments = workload.arguments(output, "--save-interval", "1", "--batch-size", "2")
    with running(arguments, tmp_path / "log", command.env | clock.env) as run:
        run.wait_for_rows(output, draw.randint(1, 3))
        later(draw, 2.0)
        clock.jump(sign * HOUR_S)
        assert run.end() == 0, run.said
    check_sound(output, workload)
    check_nothing_left(output)


def test_on_s3_a_wrong_clock_holds_a_run_up_until_it_is_set_right(
    draw: random.Random, command: Command, clock: Clock, s3_server: S3Server, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    workload, output = make_workload(tmp_path, 12), f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    arguments = workload.arguments(output, "--save-interval", "1", "--batch-size", "2")
    with running(arguments, tmp_path / "log", command.env | clock.env) as run:
        run.wait_for_rows(output, draw.randint(1, 4))
        clock.jump(draw.choice((1, -1)) * HOUR_S)
        run.wait_for_words("this machine's clock and the server's differ too much")
        later(draw, 10.0)
        clock.jump(0)
        assert run.end() == 0, run.said
    check_sound(output, workload)
    check_nothing_left(output)
