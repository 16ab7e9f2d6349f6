"""First prompts against a model's window: what a dry run says of them, counted as the run would count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kb_ray import generate
from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError
from kb_ray.model.completer import Completer
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.model.scripted import ScriptedCompleter
from kb_ray.prompts.budget import Messages, estimated_tokens
from kb_ray.records import Message, Task
from kb_ray.window import Window, misfits
from tests.unit.drive_stand_ins import task
from tests.unit.window_server import WindowServer, serving

SHORT, LONG = "word " * 10, "word " * 2000
ROOM = 1000


def opening(task: Task) -> Messages:
    return (Message(role="user", content=LONG if "long" in task.task_id else SHORT),)


def tasks(*names: str) -> list[Task]:
    return [task(0).model_copy(update={"task_id": f"folder/{name}{i}"}) for i, name in enumerate(names)]


def window(completer: Completer | None = None, **config: Any) -> Window:
    settings = {"model": "scripted", "context": ROOM + 100, "max_tokens": 100}
    return Window(RunConfig(**(settings | config)), completer or ScriptedCompleter.from_file(None))


async def test_nothing_is_said_where_all_fit_or_no_window_is_known() -> None:
    assert await misfits(window(), tasks("short", "short"), opening) is None
    assert await misfits(window(context=None), tasks("long"), opening) is None
    assert await misfits(window(), [], opening) is None


async def test_how_many_do_not_fit_is_one_line() -> None:
    line = await misfits(window(), tasks("short", "long", "long"), opening)
    assert line is not None
    assert line.startswith("2 of 3 first prompts do not fit: the longest has 2000 tokens and the answer up to 100, ")
    assert "the window of scripted holds 1100" in line


async def test_a_plan_of_which_none_fits_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 of 2 first prompts do not fit"):
        await misfits(window(), tasks("long", "long"), opening)


@pytest.mark.parametrize("count", [50, 51, 100, 4999])
async def test_of_many_tasks_some_are_looked_at_and_always_the_first(count: int) -> None:
    seen: list[str] = []

    def noted(task: Task) -> Messages:
        seen.append(task.task_id)
        return opening(task)

    line = await misfits(window(), tasks("long", *["short"] * (count - 1)), noted)
    assert seen[0] == "folder/long0"
    assert 25 <= len(seen) <= 50
    assert line is not None
    some = "" if count == 50 else f" looked at, out of {count},"
    assert line.startswith(f"1 of {len(seen)} first prompts{some} do not fit")


@pytest.mark.parametrize("counts", [True, False])
async def test_they_are_counted_by_the_server_else_estimated(counts: bool) -> None:
    async with serving(WindowServer(ROOM + 100, "", counts=counts)) as server:
        completer = OpenAICompleter(server.url, "m", max_retries=0)
        await completer.check()
        line = await misfits(window(completer, context=None), tasks("long", "short"), opening)
        await completer.aclose()
    longest = 2000 if counts else estimated_tokens(opening(*tasks("long")))
    assert line is not None
    assert f"1 of 2 first prompts do not fit: the longest has {longest} tokens" in line
    assert server.counted, "and a short prompt needs no count"


DRY = ("--model", "scripted", "--device", "cpu", "--tasks", "builtin:1", "--dry-run", "--max-tokens", "1000")


@pytest.mark.parametrize(("context", "code", "said"), [(1500, 2, "error: 13 of 13 first prompts"), (4000, 0, "")])
def test_a_dry_run_shows_its_plan_and_says_what_does_not_fit(
    context: int, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert generate.main([*DRY, "--context", str(context)]) == code
    shown = capsys.readouterr()
    assert "--- user ---" in shown.out
    assert shown.err.startswith(said)
    assert shown.err.count("\n") == bool(said)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_which_some_fit_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    program = "import torch\n\ninput_shapes = {'x': {'shape': [8], 'dtype': 'float32'}}\n\n"
    program += "def reference_impl(x):\n    return torch.relu(x)\n"
    (tmp_path / "mine" / "a.py").write_text(program)
    (tmp_path / "mine" / "b.py").write_text(program + "# and so on\n" * 2000)
    assert generate.main(["--tasks", "folder:mine", *DRY[:4], *DRY[6:], "--context", "4000"]) == 0
    assert "warning: 1 of 2 first prompts do not fit" in capsys.readouterr().err
