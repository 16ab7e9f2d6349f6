"""What is learned from: answers worth imitating, none that an evaluation asks, none cut, all counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kb_ray.errors import ConfigError
from kb_ray.exporting.options import ExportOptions
from kb_ray.learn.chat import ChatTokens
from kb_ray.traces.reading import survey
from kb_ray.training.dialogues import Clean, Dialogue, as_samples, of_store, require
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
    (found,) = of_store(survey(store_of(tmp_path, *told)), ExportOptions("sft"))
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


def test_nothing_left_is_one_line_with_the_reasons() -> None:
    made = as_samples([dialogue("w1", " ".join(["w2"] * 50))], ChatTokens(tiny.tokenizer()), most_tokens=20)
    with pytest.raises(ConfigError, match=r"nothing to learn from in runs/a: 1 too long \(20 tokens\), 2 of tasks"):
        require(made, refused=2, where=["runs/a"], most_tokens=20)
