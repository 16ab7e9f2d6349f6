"""Conversations to tokens: the assistant's own, all of them and nothing else, as the template writes them."""

from __future__ import annotations

import pytest

from kb_ray.errors import ConfigError
from kb_ray.learn.chat import ChatTokens
from tests.unit.learn import tiny

CHAT = [
    {"role": "system", "content": "w0 w1"},
    {"role": "user", "content": "w2"},
    {"role": "assistant", "content": "w3 w4"},
    {"role": "user", "content": "w5 w6"},
    {"role": "assistant", "content": "w7"},
]
FORGETS = (
    "{% for m in messages %}<|im_start|> {{ m.role }} "
    "{% if m.role == 'assistant' and not loop.last %}w25{% else %}{{ m.content }}{% endif %} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
"""Writes w25 in place of every answer but the last."""


def words(tokens: tuple[int, ...]) -> str:
    return " ".join(tiny.WORDS[token] for token in tokens)


def test_a_dialogue_is_one_sequence_with_its_answers_marked() -> None:
    tokenizer = tiny.tokenizer()
    (whole,) = ChatTokens(tokenizer).sequences(CHAT)
    text = tokenizer.apply_chat_template(CHAT, tokenize=False)
    assert list(whole.tokens) == tokenizer(text, add_special_tokens=False)["input_ids"]
    trained = tuple(token for token, own in zip(whole.tokens, whole.trained, strict=True) if own)
    assert words(trained) == "w3 w4 <|im_end|> w7 <|im_end|>"
    assert not whole.trained[0]


def test_a_template_that_rewrites_what_was_said_gives_each_answer_its_own_prompt() -> None:
    first, second = ChatTokens(tiny.tokenizer(FORGETS)).sequences(CHAT)
    assert words(first.tokens).endswith("user w2 <|im_end|> <|im_start|> assistant w3 w4 <|im_end|>")
    assert "assistant w25 <|im_end|> <|im_start|> user w5 w6" in words(second.tokens)
    for found, own in ((first, "w3 w4 <|im_end|>"), (second, "w7 <|im_end|>")):
        assert words(tuple(t for t, mine in zip(found.tokens, found.trained, strict=True) if mine)) == own


def test_a_prompt_ends_where_the_answer_begins() -> None:
    chat = ChatTokens(tiny.tokenizer())
    prompt = chat.prompt(CHAT[:2])
    assert words(prompt).endswith("user w2 <|im_end|> <|im_start|> assistant")
    assert chat.sequences(CHAT)[0].tokens[: len(prompt)] == prompt
    assert chat.end == {tiny.WORDS.index("<|im_end|>")}


@pytest.mark.parametrize(
    ("template", "message"),
    [(None, "no chat template"), ("{% for m in messages %}{{ m.content }} {% endfor %}", "no generation prompt")],
)
def test_a_template_that_cannot_be_trained_with_is_refused(template: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ChatTokens(tiny.tokenizer(template))
