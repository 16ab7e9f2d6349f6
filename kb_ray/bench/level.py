"""How far candidates get confined on this machine, said as a verdict would say it, without one.

Knows how the sandbox is entered and where a cgroup is found; what is missing is not explained here.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile

from kb_ray.bench import sandbox
from kb_ray.bench.child import cgroup

_ENTERED_S = 30.0
_MEMORY_BYTES = 8 << 30
"""More than the probe needs: only whether it can be bounded is asked."""
_PROBE = """
import os, sys
from kb_ray.bench import sandbox
scratch, cuda = sys.argv[1], sys.argv[2] == "True"
sandbox.preload()
uid = None if cuda else sandbox.separate_uid()
if uid is not None:
    os.chown(scratch, uid, uid)
input()
print(sandbox.enter(scratch, sandbox.Limits(None), sandbox.visible(cuda), uid, cuda, os.getppid()))
"""


def level(cuda: bool) -> str:
    """What verdicts reached on this machine say (`evidence.sandbox_level`), found by entering the sandbox in a child
    process, in a cgroup of its own where there is one to be had."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}){_PROBE}"]
    pipe = subprocess.PIPE
    folder = cgroup.find()
    bounded = None
    with (
        tempfile.TemporaryDirectory() as scratch,
        subprocess.Popen([*command, scratch, str(cuda)], text=True, stdin=pipe, stdout=pipe, stderr=pipe) as child,
    ):
        try:
            bounded = cgroup.confine(folder, "level", child.pid, _MEMORY_BYTES, sandbox.Limits.processes)
            answer, trouble = child.communicate("\n", timeout=_ENTERED_S)
        finally:
            child.kill()
    if bounded is not None:
        bounded.remove()
    if folder is not None:
        # What does not go now goes with the next judge's start.
        with contextlib.suppress(OSError):
            folder.rmdir()
    if not answer.strip():
        return f"none ({' '.join(trouble.strip().splitlines()[-1:])})"
    return answer.strip() + ("+watchdog" if bounded is None else "+cgroup")
