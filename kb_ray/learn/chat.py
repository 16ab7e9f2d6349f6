"""Conversations to tokens, by a model's own chat template, and which of them the assistant wrote.

Where a template writes a prompt otherwise than it writes the same messages within a longer conversation (as those do
that drop earlier reasoning), each answer becomes a sequence of its own, with the prompt that it would be given to.
Knows tokenizers, no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kb_ray.errors import ConfigError

Chat = Sequence[Mapping[str, str]]
"""Messages with `role` and `content`."""


class Marked(NamedTuple):
    """Tokens of a conversation, and which of them are the assistant's own."""

    tokens: tuple[int, ...]
    trained: tuple[bool, ...]


class ChatTokens:
    """The chat template of one tokenizer (a transformers tokenizer)."""

    def __init__(self, tokenizer: Any) -> None:
        """ConfigError where it has no chat template, or one that does not begin the assistant's answer."""
        self._tokenizer = tokenizer
        if not tokenizer.chat_template:
            raise ConfigError(f"{tokenizer.name_or_path} has no chat template: train a model made for conversations")
        asked = [{"role": "user", "content": "1"}]
        if self._render(asked, begin=True) == self._render(asked, begin=False):
            raise ConfigError(
                f"the chat template of {tokenizer.name_or_path} has no generation prompt: it must write the beginning "
                "of an answer where add_generation_prompt is set"
            )
        self.end = _ends(tokenizer)

    def prompt(self, chat: Chat) -> tuple[int, ...]:
        """Tokens of a conversation up to where the assistant is to answer."""
        return self._tokens(self._render(chat, begin=True))

    def text(self, tokens: Sequence[int]) -> str:
        """What tokens say, without those that only end a turn."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def sequences(self, chat: Chat) -> list[Marked]:
        """All answers of a conversation: one sequence where the template writes it piece by piece, else one each.

        An answer ends with the first token that ends a turn, which is trained; what the template adds after it is not.
        """
        answers = [i for i, message in enumerate(chat) if message["role"] == "assistant"]
        pieces = [self._answer(chat[: i + 1]) for i in answers]
        whole = self._joined(pieces)
        return (
            [whole] if whole is not None else [Marked(p + a, (False,) * len(p) + (True,) * len(a)) for p, a in pieces]
        )

    def _answer(self, chat: Chat) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(prompt, answer) of a conversation that ends with an answer."""
        begun, told = self._render(chat[:-1], begin=True), self._render(chat, begin=False)
        if not told.startswith(begun):
            # A template that rewrites what was said before: the answer follows the prompt that it would be given to.
            told = begun + chat[-1]["content"] + self._tail()
        prompt, rest = self._tokens(begun), self._tokens(told[len(begun) :])
        last = next((i for i, token in enumerate(rest) if token in self.end), len(rest) - 1)
        return prompt, rest[: last + 1]

    def _tail(self) -> str:
        return str(self._tokenizer.eos_token or "")

    def _joined(self, pieces: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> Marked | None:
        """All in one, if every later prompt begins with what was before; None where one does not."""
        tokens, trained = list[int](), list[bool]()
        for prompt, answer in pieces:
            if list(prompt[: len(tokens)]) != tokens:
                return None
            trained += [False] * (len(prompt) - len(tokens)) + [True] * len(answer)
            tokens = [*prompt, *answer]
        return Marked(tuple(tokens), tuple(trained))

    def _render(self, chat: Chat, begin: bool) -> str:
        messages = [{"role": message["role"], "content": message["content"]} for message in chat]
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=begin))

    def _tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def _ends(tokenizer: Any) -> frozenset[int]:
    """Tokens that end a turn: the tokenizer's end of text, and the usual ends of a message where they are one token."""
    known = [tokenizer.convert_tokens_to_ids(name) for name in ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>")]
    unknown = {None, tokenizer.unk_token_id}
    return frozenset(token for token in (tokenizer.eos_token_id, *known) if token not in unknown)
