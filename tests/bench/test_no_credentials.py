"""No credential of the cloud and no token of Ray's can be read from inside a candidate's process.

A worker's process is started with secrets in its environment and in the files where tools keep them. One search runs
in that process, where it must find them all, and as a candidate's code, where it must find none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kb_ray.env_vars import SECRETS
from tests.fixtures_bench import first

ROOT = Path(__file__).parents[2]
MARK = "kbmarker"
VARIABLES = (*SECRETS, "AWS_WEB_IDENTITY_TOKEN_FILE", "GITHUB_TOKEN")
FILES = (".ray/auth_token", ".aws/credentials", ".ssh/id_ed25519", ".cache/huggingface/token", ".netrc", ".env")
SEARCH = """
import os
def look(home, files, mark):
    places = {name: value for name, value in os.environ.items()}
    paths = {name: os.path.join(home, name) for name in files}
    try:
        names = os.listdir(os.sep + "proc")
    except OSError:
        names = ["self", *map(str, range(max(1, os.getpid() - 3000), os.getpid() + 50))]
    for pid in [n for n in names if n == "self" or n.isdigit()]:
        paths |= {f"{kind} of {pid}": os.path.join(os.sep, "proc", pid, kind) for kind in ("environ", "cmdline")}
    for name, path in paths.items():
        try:
            with open(path, "rb") as file:
                places[name] = file.read().decode(errors="replace")
        except OSError:
            pass
    found = set()
    for name, text in places.items():
        found |= {word for word in text.replace(chr(0), " ").replace("=", " ").split() if word.startswith(mark)}
    return sorted(found)
"""
WORKER = """
import json, sys
sys.path[:0] = [sys.argv[1]]
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from tests.fixtures_bench import ADD_RELU

given = json.load(sys.stdin)
scope = {}
exec(given["search"], scope)
evaluator = Evaluator(device="cpu", concurrency=1, name="credentials")
evaluator.start()
request = BenchRequest(request_id="r", task=ADD_RELU, kernel_code=given["code"],
                       settings=BenchSettings(n_correctness=1, timeout_s=60.0))
verdict = evaluator.evaluate(request)
evaluator.stop()
print("\\n" + json.dumps({"outside": scope["look"](*given["arguments"]), "status": verdict.status,
                          "inside": verdict.error.message if verdict.error else ""}))
"""


@pytest.mark.parametrize("mode", [0o600, 0o644], ids=["private files", "files open to all"])
def test_a_search_that_finds_every_secret_outside_finds_none_inside(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    for name in FILES:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{MARK}-{name}\n")
        path.chmod(mode)
    for folder in (tmp_path, home, *(path for path in home.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    arguments = [str(home), list(FILES), MARK + "-"]
    told = f"raise ValueError('found ' + repr(look(*{arguments!r})))"
    given = {"search": SEARCH, "code": SEARCH + first(told), "arguments": arguments}
    secrets = {name: f"{MARK}-{name}" for name in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(ROOT)], input=json.dumps(given), text=True, capture_output=True, timeout=300,
        env={**os.environ, **secrets, "HOME": str(home)}, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert set(found["outside"]) == {*secrets.values(), *(f"{MARK}-{name}" for name in FILES)}
    assert (found["status"], found["inside"].count(f"{MARK}-")) == ("runtime_error", 0)
    assert "found []" in found["inside"]
