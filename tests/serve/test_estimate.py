"""An estimate of a prompt against a real tokenizer and chat template: never less, and no gross exaggeration."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from kb_ray.prompts.budget import estimated_tokens, most_tokens
from kb_ray.prompts.opening import template_names, template_text
from kb_ray.records import Message

KERNELS = sorted((files("kb_ray.model") / "script" / "kernels").iterdir(), key=lambda entry: entry.name)
PROGRAMS = [
    *(template_text(name) for name in template_names()),
    *(entry.read_text("utf-8") for entry in KERNELS if entry.name.endswith(".py")),
]
OTHERS = [
    "",
    " ".join(f"{n * 0.37:.7f}" for n in range(300)),
    "每个程序处理一个块，然后写回结果。" * 30,
    "x_ptr+offs[:,None]*stride_m+k;" * 40,
    "The kernel reads every element once, and writes it once. " * 40,
]

Count = Callable[[list[Message]], int]


@pytest.fixture(scope="module")
def counted(smollm2_folder: Path) -> Count:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)

    def count(messages: list[Message]) -> int:
        said = [{"role": message.role, "content": message.content} for message in messages]
        text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        return len(tokenizer(text)["input_ids"])

    return count


@pytest.mark.parametrize("text", [*PROGRAMS, *OTHERS], ids=lambda text: text[:20])
def test_an_estimate_is_never_less_than_what_a_prompt_takes(counted: Count, text: str) -> None:
    for messages in ([Message(role="user", content=text)], [Message(role="assistant", content=text)] * 4):
        assert counted(messages) <= estimated_tokens(messages) <= most_tokens(messages)


def test_an_estimate_of_a_program_is_less_than_twice_its_tokens(counted: Count) -> None:
    for text in PROGRAMS:
        messages = [Message(role="user", content=text)]
        assert estimated_tokens(messages) < 2 * counted(messages) + 64
