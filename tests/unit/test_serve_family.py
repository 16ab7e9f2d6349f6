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
serve_family._END_S = 50.0
# One that ends by itself and leaves another behind, in a session of its own that nobody's signal reaches.
left = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3).pid, flush=True)"
orphan = int(subprocess.run([sys.executable, "-c", left], stdout=subprocess.PIPE, text=True, check=True).stdout)
child = subprocess.Popen(["sleep", "600"])
assert serve_family.node() is None
node = shutil.copy(shutil.which("sleep"), os.path.join(tempfile.mkdtemp(), "raylet"))
with subprocess.Popen([node, "600"]) as raylet:
    assert serve_family.node() == raylet.pid
    assert serve_family.end_descendants() == []
shutil.rmtree(os.path.dirname(node))
print(orphan, child.pid, child.wait())
"""
UNENDING = """
import os, signal, subprocess, sys
from kb_ray import serve_family
serve_family._END_S = 0.2
kill = os.kill
# A signal reaches a process that waits for a device only when that answers.
serve_family.os.kill = lambda pid, number: None
child = subprocess.Popen(["sleep", "600"])
left = serve_family.end_descendants()
kill(child.pid, signal.SIGKILL)
assert left == [f"{child.pid} (sleep)"], left
"""
ENDED = """
import os, subprocess, sys, time
from kb_ray import serve_family
serve_family.adopt()
held = subprocess.Popen(["sleep", "600"])
child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
left = "import subprocess; print(subprocess.Popen(['sleep', '0'], stdout=-3).pid)"
orphan = int(subprocess.run([sys.executable, "-c", left], stdout=subprocess.PIPE, text=True, check=True).stdout)
while not set(serve_family.reap_orphans([])) >= {orphan, child.pid}:
    time.sleep(0.01)
assert os.path.exists(f"/proc/{orphan}"), "it has been seen once"
ended = []
for _ in range(3):
    ended = serve_family.reap_orphans(ended)
assert not os.path.exists(f"/proc/{orphan}")
assert ended == [child.pid], ended
assert child.wait() == 7, "its exit code is whose who started it"
assert held.poll() is None
held.kill()
held.wait()
"""


def run(script: str) -> str:
    """What such a process prints; it has the descendants that this one must not lose."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_descendants_are_ended_orphans_too() -> None:
    orphan, child, status = map(int, run(ORPHANS).split())
    assert (born(orphan), born(child), status) == (None, None, -9)


def test_what_does_not_end_is_waited_for_a_while_and_named() -> None:
    run(UNENDING)


def test_orphans_that_have_ended_are_let_go_of_and_nobodys_exit_code_is_taken() -> None:
    run(ENDED)


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
