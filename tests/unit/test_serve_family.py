"""What descends from a process is found and ended, also where whoever was between them has ended before."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from kb_ray import serve_family
from kb_ray.process_identity import born

ROOT = Path(__file__).resolve().parents[2]
ORPHANS = """
import os, shutil, subprocess, sys, tempfile
from kb_ray import serve_family
serve_family.adopt()
# One that ends by itself and leaves another behind, in a session of its own that nobody's signal reaches.
left = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3).pid, flush=True)"
orphan = int(subprocess.run([sys.executable, "-c", left], stdout=subprocess.PIPE, text=True, check=True).stdout)
child = subprocess.Popen(["sleep", "600"])
assert serve_family.node() is None
node = shutil.copy(shutil.which("sleep"), os.path.join(tempfile.mkdtemp(), "raylet"))
with subprocess.Popen([node, "600"]) as raylet:
    assert serve_family.node() == raylet.pid
    serve_family.end_descendants()
shutil.rmtree(os.path.dirname(node))
print(orphan, child.pid, child.wait())
"""


def test_all_descendants_are_ended_orphans_too() -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ORPHANS], capture_output=True, text=True, env=env, timeout=60, check=True
    )
    orphan, child, status = map(int, done.stdout.split())
    assert (born(orphan), born(child), status) == (None, None, -9)


def test_the_end_of_a_process_is_noticed_while_it_matters() -> None:
    told = threading.Event()
    with subprocess.Popen(["sleep", "600"]) as node, serve_family.ending_with(node.pid, told.set):
        assert not told.wait(0.5)
        node.kill()
        assert told.wait(30)
    told.clear()
    with subprocess.Popen(["sleep", "600"]) as node:
        with serve_family.ending_with(node.pid, told.set), serve_family.ending_with(None, told.set):
            pass
        node.kill()
        node.wait()
        assert not told.wait(0.5)
