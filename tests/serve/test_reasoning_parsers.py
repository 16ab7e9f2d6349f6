"""The pinned vLLM's own parsers, chosen as its server does, put the models' reasoning into its field, not into content.

Sample answers are in the formats that the models' publishers describe. The one of gpt-oss is of token ids of a
vocabulary that vLLM downloads: its answer is parsed where TIKTOKEN_ENCODINGS_BASE names a folder with
o200k_base.tiktoken.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deployments.test_memory import config_of, model_of

VOCABULARY = Path(os.environ.get("TIKTOKEN_ENCODINGS_BASE", ""), "o200k_base.tiktoken")
REASONING = "Two rows a program: 2 < 3.\n\nThen mask."
CONTENT = "<triton>\nimport triton\n</triton>"
ANSWERS = {
    "glm45_air": f"\n<think>{REASONING}</think>\n{CONTENT}<|user|>",
    "qwen3_235b": f"<think>\n{REASONING}\n</think>\n\n{CONTENT}<|im_end|>",
    "gpt_oss_120b": f"<|channel|>analysis<|message|>{REASONING}<|end|><|start|>assistant<|channel|>final<|message|>"
    f"{CONTENT}<|return|>",
}
CUT = {"glm45_air": f"\n<think>{REASONING}", "qwen3_235b": f"<think>\n{REASONING}"}
"""Answers that met the token limit within their reasoning."""

_PARSE = """
import json, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser import ParserManager

letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
plain = Tokenizer(models.BPE(letters, []))
plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain)
# Of the models' vocabularies these are one token each; the first two are special, and left out of an answer's text.
tokenizer.add_tokens(["<|user|>", "<|im_end|>"], special_tokens=True)
tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])

def ids_of(text, harmony):
    if not harmony:
        return tokenizer.encode(text)
    from vllm.entrypoints.openai.parser.harmony_utils import get_encoding
    return get_encoding().encode(text, allowed_special="all")

found = []
for name, model_type, text in json.load(sys.stdin):
    harmony = model_type == "gpt_oss"
    parser = ParserManager.get_parser(reasoning_parser_name=name, is_harmony=harmony)
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "hi"}])
    answer = [None, None]
    if text is not None:
        ids = ids_of(text, harmony)
        shown = text if harmony else tokenizer.decode(ids, skip_special_tokens=True)
        answer = parser(tokenizer, None).parse(shown, request, model_output_token_ids=ids)[:2]
    found.append([parser.__name__, parser.reasoning_parser_cls.__name__, *answer])
print("\\n" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def parsed() -> dict[tuple[str, str], list[Any]]:
    """(deployment, its answer) -> [parser, the reasoning parser in it, reasoning, content]."""
    answers = [*ANSWERS.items(), *CUT.items()]
    cases = [
        (model_of(name).engine["reasoning_parser"], config_of(name)["model_type"], text if _readable(name) else None)
        for name, text in answers
    ]
    done = subprocess.run(
        [sys.executable, "-c", _PARSE], input=json.dumps(cases), capture_output=True, text=True, timeout=300,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(answers, json.loads(done.stdout.strip().splitlines()[-1]), strict=True))


def _readable(name: str) -> bool:
    return name != "gpt_oss_120b" or VOCABULARY.is_file()


@pytest.mark.parametrize("name", ["glm45_air", "qwen3_235b"])
def test_reasoning_lands_in_its_field_and_content_is_without_it(
    parsed: dict[tuple[str, str], list[Any]], name: str
) -> None:
    reasoning, content = parsed[name, ANSWERS[name]][2:]
    assert reasoning.strip() == REASONING
    assert content.strip() == CONTENT


@pytest.mark.parametrize("name", CUT)
def test_an_answer_that_is_cut_within_its_reasoning_has_no_content(
    parsed: dict[tuple[str, str], list[Any]], name: str
) -> None:
    reasoning, content = parsed[name, CUT[name]][2:]
    assert reasoning.strip() == REASONING
    assert not content


def test_gpt_oss_is_read_by_its_own_format_with_reasoning_on(parsed: dict[tuple[str, str], list[Any]]) -> None:
    # Without a reasoning parser the channel would be left out of the answer altogether.
    assert parsed["gpt_oss_120b", ANSWERS["gpt_oss_120b"]][:2] == ["HarmonyParser", "GptOssReasoningParser"]


@pytest.mark.skipif(not VOCABULARY.is_file(), reason="TIKTOKEN_ENCODINGS_BASE names no folder with o200k_base.tiktoken")
def test_the_reasoning_of_gpt_oss_lands_in_its_field(parsed: dict[tuple[str, str], list[Any]]) -> None:
    assert parsed["gpt_oss_120b", ANSWERS["gpt_oss_120b"]][2:] == [REASONING, CONTENT]
