"""Properties of what kb_ray says of itself: JSON lines that say which run and episode, and never a secret."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb_ray import logs, observe
from kb_ray.tally import Tally
from tests.unit.drive_stand_ins import BAD, GOOD, Bench, StandInPool, WatchedModel, script

KEY = "sk-model-server-key"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    logs.setup("text")
    logs._Saying.run_id = None


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws/secret+key")
    logs.setup("json", KEY)
    logs.name_run("run-7")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Every line of stderr, read as JSON; stdout must be empty."""
    shown = capsys.readouterr()
    assert shown.out == ""
    return [json.loads(line) for line in shown.err.splitlines()]


def test_every_line_is_json_with_the_run_and_what_it_brings(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    logs.say("run: x\nepisodes: 3", "plan", planned=3, share=float("nan"))
    logs.warn("error: no such task", "error")
    logging.getLogger("kb_ray.traces.sink").warning("%s; %d episodes wait", "the store is away", 3)
    logging.getLogger("httpx").info("a request")
    plan, error, sink = lines(capsys)
    assert (plan["message"], plan["event"], plan["planned"], plan["share"]) == ("run: x\nepisodes: 3", "plan", 3, None)
    assert (error["level"], error["event"]) == ("WARNING", "error")
    assert sink["message"] == "the store is away; 3 episodes wait"
    assert sink["logger"] == "kb_ray.traces.sink"
    assert {line["run_id"] for line in (plan, error, sink)} == {"run-7"}
    assert all("episode_id" not in line for line in (plan, error, sink))


def test_a_line_says_which_episode_it_is_about_also_from_a_thread(
    as_json: None, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("kb_ray.anything")

    async def work(name: str) -> None:
        with logs.about(name):
            await asyncio.sleep(0)
            log.info("asked")
            await asyncio.to_thread(log.info, "stored")

    async def both() -> None:
        await asyncio.gather(work("e1"), work("e2"))
        log.info("nobody's")

    asyncio.run(both())
    elsewhere = threading.Thread(target=log.info, args=("background",))
    elsewhere.start()
    elsewhere.join()
    found = [(line["message"], line.get("episode_id")) for line in lines(capsys)]
    assert sorted(found[:4]) == [("asked", "e1"), ("asked", "e2"), ("stored", "e1"), ("stored", "e2")]
    assert found[4:] == [("nobody's", None), ("background", None)]


@pytest.mark.parametrize("wanted", ["text", "json"])
def test_no_secret_is_said_wherever_it_stands(
    wanted: logs.Format, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws/secret+key")
    logs.setup(wanted, KEY)
    log = logging.getLogger("kb_ray.x")
    log.warning("key %s refused", KEY)
    log.warning("fields", extra={"fields": {"headers": {"a": ["aws/secret+key"]}}})
    log.warning("Authorization: Bearer abc.def.ghi, http://user:pa55word@host/v1")
    try:
        raise ValueError(f"bad token hf_abcdefgh and {KEY}")
    except ValueError:
        log.exception("failed")
    logs.warn(f"error: wrong key {KEY}", "error")
    said = capsys.readouterr().err
    for secret in (KEY, "hf_abcdefgh", "aws/secret+key", "abc.def.ghi", "pa55word"):
        assert secret not in said
    assert "ValueError" in said
    assert "@host/v1" in said


@pytest.mark.parametrize("named", [None, "elsewhere"])
def test_the_clusters_token_is_no_less_hidden_where_ray_reads_it_from_a_file(
    named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / (named or ".ray/auth_token")
    file.parent.mkdir(exist_ok=True)
    file.write_text("1f0c-of-the-cluster\n")
    if named is not None:
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    logs.setup("text")
    assert logs.hide("refused 1f0c-of-the-cluster.") == "refused ***."


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("{'authorization': 'Basic dXNlcjpwYXNz', 'n': 1}", "{'authorization': 'Basic ***', 'n': 1}"),
        (r'"{\"Authorization\": \"Bearer abc.def\"}"', r'"{\"Authorization\": \"Bearer ***\"}"'),
        ("Proxy-Authorization: abcdef refused", "Proxy-Authorization: *** refused"),
        ("x-api-key: abcdef", "x-api-key: ***"),
        ("GET http://h/v1?api_key=abc&n=1", "GET http://h/v1?api_key=***&n=1"),
        (
            "https://b/o?X-Amz-Credential=AK%2F1&X-Amz-Signature=ff",
            "https://b/o?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        ("basic operations; the key=value of a token", "basic operations; the key=value of a token"),
    ],
)
def test_what_looks_like_a_credential_is_hidden_by_where_it_stands(said: str, shown: str) -> None:
    assert logs.hide(said) == shown


def test_half_of_a_surrogate_pair_is_no_trouble(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    logs.tell("lone \ud800 surrogate", "turn")
    [line] = lines(capsys)
    assert line["event"] == "turn"


def test_text_is_as_it_always_was(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("text")
    logs.say("the plan", "plan", planned=3)
    logs.tell("turn 1", "turn")
    logs.warn("skipped: a task", "skipped")
    logging.getLogger("kb_ray.traces.sink").warning("the store is away")
    logging.getLogger("kb_ray.traces.sink").info("details")
    shown = capsys.readouterr()
    assert shown.out == "the plan\n"
    assert shown.err == "skipped: a task\nWARNING kb_ray.traces.sink: the store is away\n"


def test_setting_up_twice_says_everything_once(as_json: None, capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("json")
    logs.setup("json")
    logs.tell("one", "turn")
    assert len(lines(capsys)) == 1


async def test_progress_is_a_line_with_its_numbers_in_place_of_a_display(
    as_json: None, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally(total=10, earlier=3, started=0.0)
    tally.waiting_on_model, tally.generating = 4, 2
    async with observe.progress(tally):
        pass
    [line] = lines(capsys)
    assert (line["event"], line["done"], line["planned"]) == ("progress", 3, 10)
    assert (line["waiting_on_model"], line["generating"]) == (4, 2)


async def test_a_run_says_each_turn_and_episode_under_the_id_that_the_store_has(
    tmp_path: Path, as_json: None, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, WatchedModel(script(tmp_path, BAD, GOOD)), StandInPool(), multi_turn=True)
    assert (await bench.run(3)).kind == "done"
    said = lines(capsys)
    kept = {row.episode_id: row for row in bench.rows()}
    assert len(kept) == 3
    assert {line["episode_id"] for line in said} == set(kept)
    for identity, row in kept.items():
        own = [line for line in said if line["episode_id"] == identity]
        assert [line["event"] for line in own] == ["turn", "turn", "episode"]
        assert [line["status"] for line in own[:2]] == ["wrong_structure", "ok"]
        assert (own[2]["task_id"], own[2]["stop_reason"], own[2]["turns"]) == (row.task.task_id, row.stop_reason, 2)
    assert "triton" not in json.dumps([line["message"] for line in said]), "no text of a model"
