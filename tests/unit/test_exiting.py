"""A signal ends a command through its `finally` clauses, however the command was started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kb_ray.exiting import ctrl_c_at_once, sigterm_as_ctrl_c

ROOT = Path(__file__).parents[2]
# Not one long sleep: a signal just before that begins does not wake it.
PLAIN = """
try:
    print("begun", flush=True)
    for _ in range(600):
        time.sleep(0.1)
finally:
    print("let go")
"""
LOOP = """
async def work():
    other = asyncio.create_task(asyncio.sleep(60))
    try:
        print("begun", flush=True)
        await other
    finally:
        await asyncio.sleep(0)
        print("let go")
asyncio.run(work())
"""
HELD_UP = """
async def work():
    with ctrl_c_at_once():
        try:
            print("begun", flush=True)
            for _ in range(600):
                time.sleep(0.1)
        finally:
            print("let go")
asyncio.run(work())
"""


@pytest.mark.parametrize("work", [PLAIN, LOOP, HELD_UP], ids=["plain", "loop", "held-up loop"])
@pytest.mark.parametrize("before", ["", "trap '' INT; "], ids=["terminal", "script"])
def test_sigterm_ends_it_also_where_a_script_has_it_ignore_ctrl_c(work: str, before: str) -> None:
    indented = "".join(f"            {line}\n" for line in work.splitlines())
    program = (
        "import asyncio, sys, time\n"
        "from kb_ray.exiting import ctrl_c_at_once, end, sigterm_as_ctrl_c\n"
        f"def main():\n    with sigterm_as_ctrl_c() as code:\n        try:\n{indented}"
        "        except KeyboardInterrupt:\n            return code()\nend(main)\n"
    )
    # What a script starts by `&` ignores Ctrl-C, as here.
    command = ["bash", "-c", f'{before}exec "$0" -c "$1"', sys.executable, program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (said, process.returncode) == ("let go\n", 128 + signal.SIGTERM)


@pytest.mark.parametrize("code", [signal.SIGTERM, 1])
def test_a_handler_that_ray_has_while_it_starts_ends_it_with_the_same_exit_code(code: int) -> None:
    def sigterm_handler(number: int, frame: object) -> None:
        sys.exit(code)

    def started() -> None:
        with sigterm_as_ctrl_c():
            signal.signal(signal.SIGTERM, sigterm_handler)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        started()
    assert ended.value.code == 128 + signal.SIGTERM
    with pytest.raises(SystemExit) as ended, sigterm_as_ctrl_c():
        sys.exit(code)
    assert ended.value.code == code


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_afterwards_signals_mean_what_they_meant(handler: signal.Handlers) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    known = [signal.signal(number, handler) for number in numbers]
    try:
        with sigterm_as_ctrl_c(), ctrl_c_at_once():
            assert handler not in {signal.getsignal(number) for number in numbers}
        assert [signal.getsignal(number) for number in numbers] == [handler, handler]
    finally:
        for number, before in zip(numbers, known, strict=True):
            signal.signal(number, before)
