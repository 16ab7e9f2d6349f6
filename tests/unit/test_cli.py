"""Properties of the command line: bad input is one line, exit code 2 and nothing written; a dry run writes
nothing; the commands are listed without importing them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kb_ray import __main__ as listing
from kb_ray import doctor, env_vars, generate
from kb_ray.config import RunConfig, identity
from kb_ray.prompts.opening import template_text
from kb_ray.traces.run import RunInfo, fingerprint, open_run
from kb_ray.traces.store import LocalStore, open_store
from tests.unit.traces.examples import put_part

ROOT = Path(__file__).parents[2]
KEY = "right"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*(env_vars.SETTING_PREFIX + field.upper() for field in RunConfig.model_fields)]:
        monkeypatch.delenv(name, raising=False)
    for name in (*env_vars.ALIASES.values(), env_vars.RAY_ADDRESS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model_url() -> Iterator[str]:
    """A loopback server that lists one model to who has the key."""

    class Models(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == f"Bearer {KEY}"
            body = json.dumps({"data": [{"id": "served", "max_model_len": 4096}]} if allowed else {}).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a refusal."""
    before = sorted(Path.cwd().rglob("*"))
    assert generate.main(argv) == 2
    assert sorted(Path.cwd().rglob("*")) == before, "something was written"
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("error: ")
    return shown.err


SCRIPTED = ("--model", "scripted", "--device", "cpu")
BUILTIN = ("--tasks", "builtin", *SCRIPTED)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--tasks", "nowhere:1", *SCRIPTED], "nowhere"),
        (["--tasks", "folder:missing", *SCRIPTED], "missing"),
        (["--tasks", "folder:empty", *SCRIPTED], "empty"),
        (["--tasks", "file:missing.jsonl", *SCRIPTED], "missing.jsonl"),
        (["--tasks", "file:columns.jsonl", *SCRIPTED], "columns.jsonl"),
        (["--kernelbook-samples", "0", *SCRIPTED], "task"),
        (["--tasks", "builtin", "--model", "scripted:missing.jsonl"], "missing.jsonl"),
        (["--tasks", "builtin", "--model", "scripted:broken.jsonl"], "broken.jsonl"),
        ([*BUILTIN, "--prompt", "nosuch"], "nosuch"),
        ([*BUILTIN, "--output", "a_file"], "a_file"),
        ([*BUILTIN, "--output", "a_file/below"], "a_file"),
        ([*BUILTIN, "--output", "ftp://x"], "--output"),
        ([*BUILTIN, "--max-turns", "0"], "--max-turns"),
        ([*BUILTIN, "--ray-address", "http://head:8265"], "ray job submit"),
        ([*BUILTIN, "--ray-address", "127.0.0.1:9"], "127.0.0.1:9"),
        (["--tasks", "builtin", "--model", "m", "--vllm-url", "http://127.0.0.1:9/v1"], "http://127.0.0.1:9/v1"),
        # Before a data set is fetched.
        (["--kernelbook-samples", "2", "--vllm-url", "http://127.0.0.1:9/v1"], "http://127.0.0.1:9/v1"),
        (["--tasks", "kernelbench:1", "--vllm-url", "http://127.0.0.1:9/v1"], "http://127.0.0.1:9/v1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    Path("columns.jsonl").write_text('{"text": "x"}\n')
    Path("broken.jsonl").write_text("{\n")
    Path("a_file").write_text("")
    assert says in refused(capsys, *argv)


def test_a_wrong_key_a_missing_model_and_a_short_window_are_told_apart(
    model_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ("--tasks", "builtin", "--vllm-url", model_url)
    assert "wrong API key" in refused(capsys, *server, "--api-key", "wrong")
    line = refused(capsys, *server, "--api-key", KEY, "--model", "other")
    assert "other" in line
    assert "served" in line
    line = refused(capsys, *server, "--api-key", KEY, "--max-tokens", "4096")
    assert line == (
        "error: --max-tokens: 4096 does not fit served, whose window is 4096 tokens with the prompt: lower it\n"
    )


def test_an_output_of_another_run_is_refused_by_the_name_of_what_differs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun = RunConfig(temperature=0.25)
    prompt_sha = hashlib.sha256(template_text(begun.prompt).encode()).hexdigest()[:16]
    fields = identity(begun, model="scripted", script_sha="built-in", prompt_sha=prompt_sha, device="cpu")
    info = RunInfo(
        run_id="old",
        fingerprint=fingerprint(fields),
        identity=fields,
        config=begun.public(),
        versions={},
        created_at="2026-01-01",
    )
    open_run(open_store("out"), info)
    line = refused(capsys, *BUILTIN, "--output", "out")
    assert "(temperature: 0.25 -> 1.0)" in line, "only what differs"
    assert "another --output" in line


def test_a_dry_run_shows_plan_and_first_prompt_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main([*BUILTIN, "--dry-run", "--multi-turn", "--output", "out"]) == 0
    shown = capsys.readouterr().out
    assert "builtin level 1" in shown
    assert "up to 4, target speedup 1" in shown
    assert "fingerprint" in shown
    assert "--- user ---" in shown
    assert "def reference_impl" in shown
    assert not Path("out").exists()


def test_one_malformed_task_among_many_is_reported_and_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/good.py").write_text(
        "import torch\n\ninput_shapes = {'x': {'shape': [8], 'dtype': 'float32'}}\n\n"
        "def reference_impl(x):\n    return torch.relu(x)\n"
    )
    Path("mine/bad.py").write_text("def reference_impl(:\n")
    assert generate.main(["--tasks", "folder:mine", *SCRIPTED, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "1 planned: 1 folder" in shown.out
    assert shown.err.startswith("skipped: ")
    assert "bad" in shown.err


def test_help_exits_with_0_and_names_the_other_ways_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        generate.main(["--help"])
    assert stopped.value.code == 0
    assert "key=value" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [["generate", *BUILTIN, "--dry-run"], ["status", "STORE"], ["verify", "STORE"], ["compact", "STORE"]],
    ids=lambda command: command[0],
)
def test_a_reader_that_leaves_gets_no_traceback_and_no_exit_code_of_a_command_that_is_done(
    command: list[str], tmp_path: Path
) -> None:
    put_part(LocalStore(str(tmp_path)), 0)
    command = [str(tmp_path) if word == "STORE" else word for word in command]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", f"kb_ray.{command[0]}", *command[1:]],
        stdout=writer, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_ray_that_does_not_start_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where Ray wants a folder")
    done = subprocess.run(
        [sys.executable, "-m", "kb_ray.generate", *BUILTIN],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RAY_TMPDIR": str(blocked)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stopped: Ray did not start here: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [blocked]


def test_the_commands_are_listed_without_importing_them() -> None:
    code = (
        "import runpy, sys; runpy.run_module('kb_ray', run_name='__main__'); "
        "assert not [m for m in sys.modules if m.partition('.')[0] in ('ray', 'pydantic', 'pyarrow')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    names = [line.split()[0] for line in done.stdout.splitlines()[2:]]
    assert {"kb_ray.generate", "kb_ray.doctor", "kb_ray.bench"} <= set(names)
    assert names == [name for name, _ in listing.commands()]
    assert all(purpose[:1].isupper() and purpose.endswith(".") for _, purpose in listing.commands())


def test_the_doctor_says_what_there_is_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        finding.name: finding
        for finding in doctor.examine(doctor.DoctorConfig(vllm_url="http://127.0.0.1:9/v1", output="out"))
    }
    assert not found["model server"].ok
    assert not found["model server"].needed, "the demo needs none"
    assert found["trace store"].ok
    assert found["ray"].found == doctor.installed_version("ray")
    assert not Path("out").exists()
    assert all(finding.ok or finding.advice for finding in found.values())
    fit = all(finding.ok or not finding.needed for finding in found.values())
    assert doctor.main(["--vllm-url", "http://127.0.0.1:9/v1", "--output", "out"]) == (0 if fit else 1)
    assert "model server" in capsys.readouterr().out


def test_the_doctor_fails_where_the_demo_could_not_write(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a_file").write_text("")
    assert doctor.main(["--vllm-url", "http://127.0.0.1:9/v1", "--output", "a_file"]) == 1
    assert "missing  trace store" in capsys.readouterr().out


def test_the_list_of_commands_takes_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert listing.main(["--help"]) == 0
    assert "kb_ray.generate" in capsys.readouterr().out
    assert listing.main(["bench", "--help"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "error: bench: " in told.err
