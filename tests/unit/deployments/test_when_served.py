"""A command that waits for its model: what is waited out, what is not, and that it then is the command itself."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deployments import when_served
from kb_ray.errors import ConfigError, InfraError

ROOT = Path(__file__).parents[3]
MODELS = json.dumps({"data": [{"id": "m"}]})
Answers = list[tuple[int, str]]


ONE_TOKEN: Answers = [(200, "{}")]


@contextmanager
def serving(lists: Answers, answers: Answers = ONE_TOKEN) -> Iterator[str]:
    """A server that lists and answers so, in turn, the last one for ever; yields its address with /v1."""
    left = {"/v1/models": list(lists), "/v1/chat/completions": list(answers)}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            turns = left.get(self.path, [(500, "")])
            status, body = turns.pop(0) if len(turns) > 1 else turns[0]
            if status == 0:
                threading.Event().wait(1)
                return
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert (asked["model"], asked["max_tokens"]) == ("m", 1)
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(when_served, "LOOK_S", 0.01)


def test_what_a_cluster_says_before_its_model_is_there_is_waited_out(capsys: pytest.CaptureFixture[str]) -> None:
    before: Answers = [(404, "no route"), (503, ""), (500, ""), (200, "not JSON"), (200, '{"data": []}')]
    with serving([*before, (200, MODELS)]) as url:
        when_served.wait(url, 30)
    assert capsys.readouterr().out == f"waiting for a model at {url}: status 404\n", "once a minute, not each time"


def test_a_model_that_is_listed_is_waited_for_until_it_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(when_served, "_ANSWER_S", 0.2)
    never: Answers = [(0, "")]
    with serving([(200, MODELS)], [(503, ""), *never, (404, ""), (500, ""), (200, "{}")]) as url:
        when_served.wait(url, 30)
    said = f"waiting for a model at {url}: m is listed and does not answer yet: status 503\n"
    assert capsys.readouterr().out == said
    with serving([(200, MODELS)], never) as url, pytest.raises(InfraError, match=r"m is listed and does not answer ye"):
        when_served.wait(url, 0.1)


def test_what_a_model_refuses_is_for_the_command_to_be_told() -> None:
    with serving([(200, MODELS)], [(400, "no chat template")]) as url:
        when_served.wait(url, 30)


def test_an_adapter_is_not_asked() -> None:
    cards = [{"id": "m"}, {"id": "m:adapter", "parent": "m"}]
    with serving([(200, json.dumps({"data": cards}))]) as url:
        when_served.wait(url, 30)


def test_a_server_that_is_not_there_yet_is_waited_for_and_no_longer_than_asked() -> None:
    with pytest.raises(InfraError, match=r"no model at http://127\.0\.0\.1:1/v1 within 0\.005 minutes \(.*refused"):
        when_served.wait("http://127.0.0.1:1/v1", 0.3)


@contextmanager
def speaking(answers: list[bytes]) -> Iterator[str]:
    """A port that says these bytes in turn, the last for ever, and hangs up each time; yields its address with /v1."""
    left = list(answers)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(left.pop(0) if len(left) > 1 else left[0])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def test_what_is_no_answer_yet_is_waited_out(capsys: pytest.CaptureFixture[str]) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(MODELS)}\r\n\r\n"
    no_http, cut, nothing = b"SSH-2.0-OpenSSH_9.6\r\n", (head + MODELS[:5]).encode(), b""
    with speaking([no_http, cut, nothing, (head + MODELS).encode()]) as url:
        when_served.wait(url, 30)
    assert capsys.readouterr().out == f"waiting for a model at {url}: no whole HTTP answer: SSH-2.0-OpenSSH_9.6\n"
    with speaking([cut]) as url, pytest.raises(InfraError, match=r"HTTP answer: IncompleteRead\(5 bytes read"):
        when_served.wait(url, 0.1)


def test_a_key_that_no_header_can_carry_is_one_line_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "a-secret\nkey")
    assert when_served.main(["http://127.0.0.1:1/v1", "true"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: the API key has characters that no header can carry: check VLLM_API_KEY"


def test_a_refusal_is_not_waited_out() -> None:
    with serving([(401, "")]) as url, pytest.raises(ConfigError, match="status 401: the address and VLLM_API_KEY"):
        when_served.wait(url, 30)


def test_it_then_is_the_command_with_its_arguments_and_its_exit_code() -> None:
    script = "import sys; print(sys.argv[1:]); sys.exit(7)"
    with serving([(200, MODELS)]) as url:
        done = subprocess.run(
            [sys.executable, "-m", "deployments.when_served", url, sys.executable, "-c", script, "--minutes", "x"],
            capture_output=True, text=True, timeout=60, cwd=ROOT,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (7, "['--minutes', 'x']\n", "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["host:8000", "true"], 2, "host:8000 is no address of a model server"),
        (["http://127.0.0.1:9", "true"], 2, "http://127.0.0.1:9: pass the address that ends in /v1"),
        (["http://127.0.0.1:80o0/v1", "true"], 2, "http://127.0.0.1:80o0/v1 is no address of a model server"),
        (["http://[::1/v1", "true"], 2, "http://[::1/v1 is no address of a model server"),
        (["http://.:8000/v1", "true"], 2, "http://.:8000/v1 is no address of a model server"),
        (["http://127.0.0.1:1/v1"], 2, "name a command"),
        (["http://127.0.0.1:1/v1", "no-such-program"], 2, "there is no command no-such-program"),
        (["--minutes", "0", "http://127.0.0.1:1/v1", "true"], 1, "no model at"),
    ],
)
def test_what_cannot_be_is_one_line(words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert when_served.main(words) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}")
