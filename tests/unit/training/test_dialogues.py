"""What is learned from: answers worth imitating, none that an evaluation asks, none cut, all counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.exporting.options import ExportOptions, Filters, Keep
from kb_ray.learn.chat import ChatTokens
from kb_ray.traces.reading import survey
from kb_ray.training.dialogues import Clean, Dialogue, OfStore, account, as_samples, require
from tests.unit.exporting.stories import store_of, story, task
from tests.unit.learn import tiny

PROGRAM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3.0 + torch.sigmoid(x)


def get_inputs():
    return [torch.rand(4, 4)]
"""
DISGUISED = """# the same under other names
from torch import nn, sigmoid
import torch as t


class Something(nn.Module):
    '''A module.'''

    def forward(self, value):
        return t.relu(value) * 3.0 + sigmoid(value)


def get_inputs():
    return [t.rand(8, 2)]
"""
OTHER = PROGRAM.replace("torch.relu(x) * 3.0 + torch.sigmoid(x)", "torch.softmax(x.sum(1, keepdim=True), 0) / 7.0")


def dialogue(*words: str, program: str = PROGRAM) -> Dialogue:
    roles = ("user", "assistant") * len(words)
    return Dialogue([{"role": r, "content": w} for r, w in zip(roles, words, strict=False)], "t", program)


@pytest.mark.parametrize(("program", "refused"), [(PROGRAM, 1), (DISGUISED, 1), (OTHER, 0)])
def test_tasks_to_be_kept_clean_are_refused_in_any_disguise(program: str, refused: int) -> None:
    clean = Clean([PROGRAM])
    kept = list(clean([dialogue("w1", "w2", program=program)]))
    assert (len(kept), clean.refused) == (1 - refused, refused)


def test_what_a_program_is_about_is_its_entry_point_and_not_what_is_guessed() -> None:
    """Beside the task a file has a class of its own that its inputs would suit as well."""
    task = "class Asked(nn.Module):\n    def forward(self, x):\n        return torch.relu(torch.tanh(x) * 3.0)\n"
    beside = "class Beside(nn.Module):\n    def forward(self, x):\n        return torch.exp(x)\n"
    inputs = "def get_inputs():\n    return [torch.rand(8)]\n"
    other = "class Other(nn.Module):\n    def forward(self, y):\n        return torch.exp(y)\n\n\n" + inputs
    found = Dialogue([], "t", "\n\n".join([task, beside, inputs]), "Asked")
    assert list(Clean([other])([found])) == [found]
    assert list(Clean([other])([replace(found, entry_point=None)])) == []
    assert list(Clean([(found.program, "Asked")])([Dialogue([], "t", other)]))
    assert not list(Clean([found.program])([Dialogue([], "t", other)]))


def test_a_store_gives_its_best_answers_with_what_led_to_them(tmp_path: Path) -> None:
    told = [story("wrong", "fast", of=task("relu")), story("wrong", "broken", of=task("exp"))]
    (found,) = OfStore(survey(store_of(tmp_path, *told)), ExportOptions("sft"))
    assert found.task_id.endswith("relu")
    assert [message["role"] for message in found.messages][-3:] == ["assistant", "user", "assistant"]
    assert found.messages[-1]["content"] == told[0].turns[1].completion.text
    assert (found.program, found.entry_point) == (told[0].task.reference_code, told[0].task.entry_point)


def test_what_does_not_fit_is_counted_and_not_cut() -> None:
    chat = ChatTokens(tiny.tokenizer())
    short, long = dialogue("w1", "w2"), dialogue("w1", " ".join(["w2"] * 50))
    made = as_samples([short, long], chat, most_tokens=20)
    assert (len(made.samples), made.left_out["too_long"]) == (1, 1)
    assert len(as_samples([short] * 5, chat, 20, limit=3).samples) == 3


WITHOUT = {"without an answer": 1, "without a correct kernel": 1, "without a correct kernel that is trusted": 1}


@pytest.mark.parametrize(
    ("keep", "left_out"),
    [
        ("correct", WITHOUT),
        ("fast", WITHOUT | {"without a kernel that is fast enough": 1}),
        ("best", {"without an answer": 1}),
        ("all", {"without an answer": 1}),
    ],
)
def test_each_episode_is_a_conversation_or_left_out_by_its_reason(
    tmp_path: Path, keep: Keep, left_out: dict[str, int]
) -> None:
    words: list[tuple[str, ...]] = [("fast",), ("slow",), ("odd",), ("wrong", "broken"), ()]
    told = [story(*turns, sample=sample) for sample, turns in enumerate(words)]
    found = OfStore(survey(store_of(tmp_path, *told)), ExportOptions("sft", keep=keep))
    assert len(list(found)) + found.left_out.total() == len(told)
    assert found.left_out == left_out


def test_what_filters_take_away_is_counted_too(tmp_path: Path) -> None:
    told = [story("fast", of=task("relu")), story("fast", of=task("exp")), story("wrong", of=task("log"))]
    options = ExportOptions("sft", Filters(status=frozenset({"mismatch"})))
    found = OfStore(survey(store_of(tmp_path, *told)), options)
    assert list(found) == []
    assert found.left_out == {"filtered": 2, "without a correct kernel": 1}


REWRITING = tiny.TEMPLATE.replace(
    "{{ m.content }}", "{% if loop.last or m.role == 'user' %}{{ m.content }}{% else %}w9{% endif %}"
)
"""Of earlier answers something else stays: each answer is a sequence of its own."""


def test_what_is_left_out_and_what_is_learned_add_up_to_what_was_read() -> None:
    clean = Clean([OTHER])
    long, short = " ".join(["w2"] * 50), dialogue("w1", "w2")
    given = [short, dialogue("w1", long), dialogue("w1", "w2", program=OTHER), dialogue("w1"), short]
    chat = ChatTokens(tiny.tokenizer())
    made = as_samples(clean(given), chat, most_tokens=20)
    made.left_out["no kernel"] += 4
    assert account(made, clean.refused, None) == (
        "samples:  2; of 9 that were read, left out: 1 empty, 4 no kernel, 1 of tasks kept clean, 1 too long"
    )
    assert account(as_samples([short] * 2, chat, 20), 0, None) == "samples:  2"


def test_where_no_more_is_wanted_no_more_is_read_and_it_is_told() -> None:
    given, chat = iter([dialogue("w1", "w2")] * 5), ChatTokens(tiny.tokenizer())
    made = as_samples(given, chat, 20, limit=3)
    assert account(made, 0, 3) == "samples:  3; nothing more was read: --samples 3"
    assert len(list(given)) == 2


def test_a_conversation_of_several_samples_is_one_of_what_was_read() -> None:
    """One of its answers is too long; the others are learned."""
    several = dialogue("w1", "w2", "w3", "w4", "w5", " ".join(["w6"] * 50))
    made = as_samples([several, dialogue("w1", " ".join(["w6"] * 50))], ChatTokens(tiny.tokenizer(REWRITING)), 40)
    assert account(made, 0, None) == (
        "samples:  2 in 1 conversations; of 2 that were read, left out: 1 too long; 1 answers of these too long"
    )


def test_nothing_left_is_one_line_with_the_reasons() -> None:
    made = as_samples([dialogue("w1", " ".join(["w2"] * 50))], ChatTokens(tiny.tokenizer()), most_tokens=20)
    with pytest.raises(ConfigError, match=r"nothing to learn from in runs/a: 1 too long \(20 tokens\), 2 of tasks"):
        require(made, refused=2, where=["runs/a"], most_tokens=20)
