"""Kill -9 a trace writer again and again, starting it anew each time, and see what the store holds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from kb_ray.traces.layout import list_parts
from kb_ray.traces.resume import read_columns
from kb_ray.traces.store import Store

WRITER = Path(__file__).with_name("writer.py")


def kill_until_done(uri: str, *, total: int, flush_every: int, kills: int, env: Mapping[str, str]) -> list[int]:
    """Runs the writer to its end, after `kills` SIGKILLs; returns how many samples were safe at each kill."""
    chance = random.Random(7)
    saved_at_kill = []
    for _ in range(kills):
        with _start(uri, total, flush_every, env) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(chance.randint(1, 4))]
            time.sleep(chance.uniform(0, 0.05))
            process.kill()
            lines += process.stdout.readlines()
        saved_at_kill.append(max(int(line.split()[1]) for line in lines if line.startswith("saved")))
    with _start(uri, total, flush_every, env) as process:
        assert process.stdout is not None
        assert process.stdout.readlines()[-1] == "done\n"
    return saved_at_kill


def samples_in_parts(store: Store) -> Counter[int]:
    """How often each sample lies in the parts; reading them proves that every part is whole."""
    found: Counter[int] = Counter()
    for _, table in read_columns(store, list_parts(store), ["sample"]):
        found.update(table.column("sample").to_pylist())
    return found


def _start(uri: str, total: int, flush_every: int, env: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), uri, str(total), str(flush_every)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
