"""A scripted model answers the same every time, and its built-in script shows every kind of answer."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb_ray.errors import ConfigError, ModelError
from kb_ray.extract import extract
from kb_ray.model.builtin_script import Answer, builtin_script
from kb_ray.model.completer import Completer, ModelInfo, Request
from kb_ray.model.scripted import ScriptedCompleter
from kb_ray.records import Candidate, Completion, Message, NoCandidate, Sampling
from kb_ray.tasks import Sources, plan

Script = Callable[..., ScriptedCompleter]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(*lines: dict[str, Any] | str) -> ScriptedCompleter:
        path = tmp_path / "script.jsonl"
        path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
        return ScriptedCompleter.from_file(str(path))

    return write


def request(task_id: str, turn: int = 0, **more: Any) -> Request:
    return Request(messages=(Message(role="user", content="two words"),), task_id=task_id, turn=turn, **more)


# The completer


async def test_the_first_matching_line_answers_by_turn_and_its_last_answer_repeats(script: Script) -> None:
    completer = script({"task": "a/1", "turns": ["one", "two"]}, {"task": "a/*", "turns": ["any"]})
    answers = [(await completer.complete(request("a/1", turn))).text for turn in range(4)]
    assert answers == ["one", "two", "two", "two"]
    assert (await completer.complete(request("a/b/c"))).text == "any"


async def test_a_task_id_with_pattern_characters_matches_itself(script: Script) -> None:
    completer = script({"task": "folder/x[1]", "turns": ["found"]})
    assert (await completer.complete(request("folder/x[1]"))).text == "found"


async def test_an_answer_carries_what_a_server_would_send(script: Script) -> None:
    line = {"task": "*", "turns": ["a b c", "cut"], "reasoning": ["d e"], "finish_reason": ["stop", "length"]}
    completer = script(line)
    sampling = Sampling(temperature=0.3, seed=7)
    first = await completer.complete(request("x", sampling=sampling))
    assert (first.text, first.reasoning, first.finish_reason) == ("a b c", "d e", "stop")
    assert (first.model, first.sampling) == ("scripted", sampling)
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (2, 5)
    assert first.latency_s > 0
    second = await completer.complete(request("x", turn=1))
    assert (second.reasoning, second.finish_reason) == (None, "length")


async def test_thinking_in_the_text_becomes_reasoning(script: Script) -> None:
    completer = script({"task": "*", "turns": ["<think>\nhm\n</think>\nanswer"]})
    completion = await completer.complete(request("x"))
    assert (completion.text.strip(), completion.reasoning) == ("answer", "hm")


async def test_samples_and_attempts_of_a_task_get_the_same_answer(script: Script) -> None:
    completer = script({"task": "*", "turns": ["same"]})
    answers = [await completer.complete(request("x", sample=s, attempt=a)) for s in (0, 1) for a in (1, 2)]
    assert {answer.text for answer in answers} == {"same"}


async def test_a_task_that_the_script_does_not_know_is_a_model_error_that_names_it(script: Script) -> None:
    with pytest.raises(ModelError, match="kernelbook/17"):
        await script({"task": "builtin/*", "turns": ["x"]}).complete(request("kernelbook/17"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{not json", "Invalid JSON"),
        ('["task"]', "should be an object"),
        ({"task": "x"}, "turns: Field required"),
        ({"task": "x", "turns": []}, "turns: Tuple should have at least 1 item"),
        ({"task": "x", "turns": "one"}, "turns:"),
        ({"task": "x", "turns": ["a"], "turn": 1}, "turn: Extra inputs"),
        ({"task": "x", "turns": ["a"], "finish_reason": ["stop", "stop"]}, "longer than turns"),
    ],
)
async def test_a_malformed_line_is_a_configuration_error_with_its_number(
    script: Script, line: dict[str, Any] | str, reason: str
) -> None:
    completer = script({"task": "*", "turns": ["fine"]}, "", line)
    for use in (completer.check, lambda: completer.complete(request("x"))):
        with pytest.raises(ConfigError, match="line 3: ") as caught:
            await use()
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_a_script_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"\xe9")
    for name, reason in {"gone": "No such file", "empty": "is empty", "latin": "not UTF-8"}.items():
        with pytest.raises(ConfigError, match=reason):
            await ScriptedCompleter.from_file(str(tmp_path / name)).check()


async def test_it_is_a_completer_and_says_who_answers() -> None:
    completer: Completer = ScriptedCompleter.from_file(None)
    assert await completer.check() == ModelInfo(model="scripted")
    await completer.aclose()


async def test_answers_come_at_once() -> None:
    completer = ScriptedCompleter.from_file(None)
    started = time.monotonic()
    await completer.complete(request("builtin/1/add_relu"))
    assert time.monotonic() - started < 20


# The built-in script


def candidates(task_id: str) -> list[Candidate | NoCandidate]:
    line = next(line for line in builtin_script() if line.task == task_id)
    answers = [line.answer(turn) for turn in range(len(line.turns))]
    return [extract(Completion(text=text, finish_reason=finish, model="scripted")) for text, _, finish in answers]


def test_every_builtin_task_has_its_own_line_and_no_line_is_left_over() -> None:
    tasks = [task.task_id for task, _ in plan(Sources(specs=("builtin",)), lambda line: pytest.fail(line))]
    assert sorted(line.task for line in builtin_script()) == sorted(tasks)


def test_add_relu_plays_four_turns_from_a_wrong_product_to_a_fused_kernel() -> None:
    product, far, two, fused = [c.code for c in candidates("builtin/1/add_relu") if isinstance(c, Candidate)]
    assert "x * y" in product
    assert "mask" not in "".join(line for line in far.splitlines() if "tl." in line)
    assert two.count("@triton.jit") == 2
    assert fused.count("@triton.jit") == 1
    assert "tl.maximum(x + y, 0.0)" in fused


def test_answers_fail_and_succeed_in_many_ways() -> None:
    lines = builtin_script()
    firsts = [candidates(line.task)[0] for line in lines]
    assert {c.status for c in firsts if isinstance(c, NoCandidate)} == {"no_code", "truncated"}
    rules = {c.rule for c in firsts if isinstance(c, Candidate)}
    assert {"fence", "triton_tag"} <= rules
    assert {len(line.turns) for line in lines} >= {1, 2, 3, 4, 5}
    assert any("<think>" in turn for line in lines for turn in line.turns)
    assert any(reasoning for line in lines for reasoning in line.reasoning)


def test_one_answer_is_no_python_and_all_other_code_is() -> None:
    broken = []
    for line in builtin_script():
        for turn, candidate in enumerate(candidates(line.task)):
            if isinstance(candidate, Candidate):
                try:
                    ast.parse(candidate.code)
                except SyntaxError:
                    broken.append((line.task, turn))
    assert broken == [("builtin/1/max_pool_2x2", 0)]


def test_an_edit_that_does_not_apply_exactly_once_is_refused() -> None:
    for old in ("no such text", "tl.load"):
        with pytest.raises(ValueError, match="exactly once"):
            Answer(before="x", kernel="add_relu", edits=((old, ""),)).text()


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs torch and triton: pip install 'kb-ray[bench]'"
)
def test_the_last_answer_to_every_task_is_right() -> None:
    root = Path(__file__).parents[3]
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, str(Path(__file__).with_name("script_check.py")), "cpu"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    results = {row["task"]: row["error"] for row in map(json.loads, done.stdout.splitlines())}
    assert results == dict.fromkeys((line.task for line in builtin_script()), None)
