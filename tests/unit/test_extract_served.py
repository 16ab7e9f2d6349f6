"""Extraction behind a server: the same candidate as from the raw text, and reasons that are true of what it sent."""

from __future__ import annotations

import json
import warnings

import pytest
from extraction_cases import CODE, OLD, PROSE, Case, fence
from extraction_chats import CHATS
from extraction_families import FAMILIES
from extraction_versions import VERSIONS

from kb_ray.extract import extract
from kb_ray.model import wire
from kb_ray.records import Candidate, Completion, NoCandidate, Sampling

CASES = CHATS | VERSIONS | FAMILIES
DRAFT = f"A draft:\n{fence(OLD)}But "


def served(content: str | None, finish_reason: str = "stop", **fields: str) -> Candidate | NoCandidate:
    message = {"role": "assistant", "content": content, **fields}
    answer = json.dumps({"choices": [{"message": message, "finish_reason": finish_reason}]}).encode()
    return extract(wire.completion(answer, model="m", sampling=Sampling()))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_thinking_that_the_server_left_in_the_text_changes_nothing(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert served(case.text) == extract(Completion(text=case.text, finish_reason="stop", model="m"))


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize(
    "content",
    [
        f"{fence(CODE)}\n</think>",
        f"{fence(CODE)}\n</think>\nThis halves x.",
        f"But no.\n{fence(OLD)}</think>\n{fence(CODE)}",
        f"<|channel|>final<|message|>\n{fence(CODE)}",
    ],
    ids=["closed again", "closed again, then a remark", "thinking goes on", "channel"],
)
def test_marks_that_a_servers_parser_left_do_not_hide_the_answer(field: str, content: str) -> None:
    found = served(content, **{field: DRAFT})
    assert isinstance(found, Candidate)
    assert found.code.strip() == CODE.strip()


@pytest.mark.parametrize(
    ("content", "fields"),
    [(f"<think>\n{DRAFT}", {}), (None, {"reasoning": DRAFT}), ("", {"reasoning_content": DRAFT})],
    ids=["in the text", "in a field", "in the older field"],
)
def test_an_answer_that_is_all_thinking_says_so_and_that_drafts_are_not_taken(
    content: str | None, fields: dict[str, str]
) -> None:
    cut, ended = served(content, "length", **fields), served(content, "stop", **fields)
    assert isinstance(cut, NoCandidate)
    assert isinstance(ended, NoCandidate)
    assert (cut.status, ended.status) == ("truncated", "no_code")
    assert "inside its thinking" in cut.reason
    assert "only thought" in ended.reason
    assert all("drafts in the thinking are never taken" in found.reason for found in (cut, ended))


def test_reasons_name_no_thinking_and_no_drafts_where_there_are_none() -> None:
    empty, thought, cut = served(""), served(None, reasoning=PROSE), served("", "length")
    assert isinstance(empty, NoCandidate)
    assert isinstance(thought, NoCandidate)
    assert isinstance(cut, NoCandidate)
    assert "the answer is empty; looked for" in empty.reason
    assert "only thought" in thought.reason
    assert "drafts" not in thought.reason
    assert "before it began" in cut.reason


def test_an_answer_cut_right_behind_its_thinking_gives_no_draft() -> None:
    found = served(f"{fence(OLD)}</think>\n", "length")
    assert isinstance(found, NoCandidate)
    assert found.status == "truncated"
