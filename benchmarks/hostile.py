"""Candidates that use up what all share: processes, memory, disk, descriptors, output, time.

Each does its harm and then goes on as a right kernel would, where it lives so long. They begin past the static rules,
which know the ordinary spellings and would end them before they start. Not for a machine without the sandbox: there
some of them do what they say.
"""

from __future__ import annotations

from benchmarks import candidates

_PAST_THE_RULES = """
import os, signal, sys, threading, time
fork = next(v for k, v in vars(os).items() if k[::-1] == "krof")
MIB = 1 << 20


def hold():
    time.sleep(600)


def deaf():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))


def sleepers(count):
    for _ in range(count):
        threading.Thread(target=hold, daemon=True).start()
    hold()


"""

KINDS: dict[str, str] = {
    "fork bomb": "while True:\n    try:\n        fork()\n    except OSError:\n        pass\n",
    "fork tree": "for _ in range(30):\n    try:\n        fork()\n    except OSError:\n        hold()\nhold()\n",
    "memory hog": "held = []\nwhile True:\n    held.append(b'x' * (64 * MIB))\n",
    "memory hog of many": "for _ in range(20):\n    if fork() == 0:\n        held = b'x' * (900 * MIB)\n"
    "        hold()\nhold()\n",
    "disk filler": "n = 0\nwhile True:\n    n += 1\n    with open(f'f{n}', 'wb') as f:\n"
    "        f.write(bytes(64 * MIB))\n",
    "disk filler without names": "kept = []\nwhile True:\n    kept.append(open('g', 'wb', 0))\n    os.unlink('g')\n"
    "    kept[-1].write(bytes(64 * MIB))\n",
    "file flood": "n = 0\nwhile True:\n    n += 1\n    os.mkdir(f'd{n}')\n    open(f'd{n}/f', 'w').close()\n",
    "deep folders": "while True:\n    os.mkdir('d')\n    os.chdir('d')\n",
    "orphan daemon": "if fork() == 0:\n    if fork() == 0:\n        deaf()\n        hold()\n    os._exit(0)\n",
    "orphan that works": "if fork() == 0:\n    if fork() == 0:\n        deaf()\n        while True:\n            pass\n"
    "    os._exit(0)\nraise ValueError('gone')\n",
    "signal blocker": "deaf()\nwhile True:\n    pass\n",
    "signal blocker that catches all": "deaf()\nwhile True:\n    try:\n        hold()\n"
    "    except BaseException:\n        pass\n",
    "descriptor flood": "held = []\nwhile True:\n    try:\n        held.append(os.open('/dev/null', os.O_RDONLY))\n"
    "    except OSError:\n        break\n",
    "pipe flood": "held = []\nwhile True:\n    try:\n        ends = os.pipe()\n"
    "        os.set_blocking(ends[1], False)\n"
    "        os.write(ends[1], b'x' * 65536)\n        held.append(ends)\n    except OSError:\n        break\n",
    "log flood": "for _ in range(1024):\n    os.write(1, b'x' * MIB)\n    os.write(2, b'y' * 1024)\n",
    "log flood in lines": "line = 'x' * 4095\nfor _ in range(1 << 18):\n    print(line)\n",
    "sleeping threads": "sleepers(1000)\n",
    "sleeping threads in bounds": "for _ in range(100):\n    threading.Thread(target=hold).start()\n",
}
"""What happens when the file is loaded."""

CALLS: dict[str, str] = {
    "huge output": "return torch.zeros(1, device=x.device).expand(1 << 40)",
    "huge output in memory": "return [torch.ones(1 << 28) for _ in range(64)]",
    "output without end": "return [x] * 1_000_000",
    "huge exception": "raise ValueError('x' * (256 * MIB))",
    "sleep in the call": "hold()",
}
"""What happens when it is called."""

NAMES = (*KINDS, *CALLS)
SLOW = ("log flood", "log flood in lines")
"""Whose harm, a gigabyte, takes longer than others are given."""


def hostile(name: str, number: int) -> str:
    """A candidate of this kind for `candidates.add_relu`; another source for every number."""
    if name in KINDS:
        return _PAST_THE_RULES + KINDS[name] + candidates.right(number)
    return _PAST_THE_RULES + candidates.first_doing(CALLS[name], number)
