"""Extraction's work stays in proportion to an answer's length, whatever loop a model fell into.

Work is counted in characters handed to Python's parser, which no load of the machine changes.
"""

from __future__ import annotations

import ast
import itertools
import symtable
import time
from typing import Any

import pytest
from extraction_cases import CODE, DEMO, DOC, OLD, PROSE, WRAPPER, fence, tag

from kb_ray.extract import extract
from kb_ray.model import wire
from kb_ray.records import Candidate, Completion

SIZE = 64_000
READINGS = 16
"""Characters parsed for each of an answer: four steps of at most four readings."""


def filled(unit: str) -> str:
    return unit * (SIZE // len(unit))


def counted(text: str) -> str:
    """A loop whose every round differs: nothing in it is known from the round before."""
    return "".join(text.replace("%", str(n)) for n in range(SIZE // len(text)))


LOOPS = {
    "marks of an answer's end": filled("</s>") + "x",
    "such marks apart": filled("</s> ") + "x",
    "such marks behind code": fence(CODE) + filled("<|im_end|>") + "x",
    "such marks before code": filled("<|end|> ") + fence(CODE),
    "closing tags": filled("</answer>") + "x",
    "opening tags": filled("<answer>") + " x",
    "an import": filled("import torch\n"),
    "a fence and an import": filled("```python\nimport torch\n"),
    "old versions": filled(fence(OLD) + "and "),
    "broken functions": filled("def f(x):\n  return (\n"),
    "a tag": filled("<triton>\n"),
    "open docstrings in closed fences": filled('```python\n"""doc\n```\n'),
    "open docstrings in open fences": filled('```python\n"""doc\n'),
    "open docstrings of functions": filled(fence('def triton_kernel_wrapper(x):\n    """Halves a tensor.\n')),
    "open docstrings that differ": counted('```python\n"""doc %\n```\n'),
    "docstrings that open and close": counted('```python\n"""a % """\n"""b\n```\n'),
    "docstrings with fences": filled(fence(DOC)),
    "docstrings with fences, never closed": filled(f"```python\n{DOC}"),
    "docstrings of the other quotes": filled("~~~python\n'''doc\n~~~\n"),
    "quotes": filled("```python\n'\n\"\n'''\n\"\"\"\n```\n"),
    "tildes": filled("~~~\nx = (\n~~~\n"),
    "fences in fences": filled("````markdown\n```python\nx = (\n```\n"),
    "ever shorter fences": "".join("`" * n + "python\nx = (\n" for n in range(340, 2, -1)),
    "ever longer fences": "".join("`" * n + "python\nx = (\n" for n in range(3, 340)),
    "tags in fences in tags": filled("<triton>\n```python\n<triton>\nx = (\n"),
    "tags around code": filled(tag(CODE)),
    "tags around code that differs": counted(tag(CODE + "A = %\n")),
    "open tags around code": filled(f"<triton>\n{CODE}"),
    "tags in comments": filled("# <triton> </triton>\n"),
    "closing tags in comments": "<triton>\n" + counted("x = % # </triton>\n"),
    "opening tags in comments": "<triton>\n" + counted("x = % # <triton>\n"),
    "tags around comments that close them": counted("<triton>\nx = % # </triton>\n"),
    "tags around broken code with comments that close them": counted("<triton>\nx = (% # </triton>\n"),
    "tags around open docstrings": counted('<triton>\n"""%\n</triton>\n'),
    "tags around open docstrings, never closed": counted('<triton>\n"""%\n'),
    "tags around fences with tags in comments": counted("<triton>\n```python\nx = % # </triton>\n```\n"),
    "tags and comments on one line": counted("<triton>x = % # </triton>"),
    "numbered lines": counted("% x = (\n"),
    "thinking": filled(f"<think>\n{CODE}</think>\n"),
    "closing marks of thinking": filled("</think>\n"),
    "marks of thinking in comments": "import torch\n" + filled("    # <think>\n    y = 1\n"),
    "channels on one line": filled("<|channel|>final<|message|>x"),
    "marks at the end of lines": filled("x = (```\n"),
    "a fence and marks at the end of lines": "```python\n" + filled("x = (```\n"),
    "open brackets": filled("x = (\n"),
    "brackets that close late": filled("x = (\n1\n)\n"),
    "brackets": filled("("),
    "assignments and prose": filled("x = 1\nthis is prose\ndef "),
    "code and prose with apostrophes": filled(CODE + "\nIt's fast, isn't it?\n"),
    "broken code": filled(CODE.replace("(x):", "(x)")),
    "decorators": filled("@triton.jit\n"),
    "words": filled("Done\n") + WRAPPER,
    "blanks": f"```python\n{' ' * SIZE}\n```",
    "line ends": "\n" * SIZE,
    "backticks": "`" * SIZE,
    "quotations": filled("> x = (\n"),
    "list items": filled("- ```python\n  x = (\n  ```\n"),
    "JSON": filled('{"a": '),
    "usage": fence(CODE) + filled(fence(DEMO)),
    "prose": filled(PROSE) + fence(CODE),
    "small functions": counted("def f%():\n    return %\n\n"),
    "non-ASCII": filled("“x” – y\n") + WRAPPER,
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all that is parsed from here on."""
    parsed: list[int] = []

    def counting(real: Any) -> Any:
        def call(code: str, *rest: Any) -> Any:
            parsed.append(len(code))
            return real(code, *rest)

        return call

    monkeypatch.setattr(ast, "parse", counting(ast.parse))
    monkeypatch.setattr(symtable, "symtable", counting(symtable.symtable))
    return parsed


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_long_degenerate_answers_are_quick(text: str, finish_reason: str, work: list[int]) -> None:
    began = time.process_time()
    raw = wire.split_reasoning(text)
    extract(Completion(text=text, finish_reason=finish_reason, model="m"))
    seconds = time.process_time() - began
    assert raw
    assert sum(work) <= READINGS * len(text)
    # What is not parsing (searching for marks, walking trees) is not counted, but does not grow faster either.
    assert seconds < 5


@pytest.mark.parametrize(
    "unit",
    [
        '```python\n"""doc %\n```\n',
        "<triton>\nx = (%\n",
        "x = (\n%,\n",
        tag(CODE + "A = %\n"),
        "<triton>\nx = % # </triton>\n",
        '<triton>\n"""%\n</triton>\n',
    ],
)
def test_twice_the_loop_is_twice_the_work(unit: str, work: list[int]) -> None:
    sums = []
    for rounds in (200, 400, 800):
        work.clear()
        text = "".join(unit.replace("%", str(n)) for n in range(rounds))
        extract(Completion(text=text, finish_reason="stop", model="m"))
        sums.append(sum(work))
    assert all(more <= 2.5 * less + 65_536 for less, more in itertools.pairwise(sums))


@pytest.mark.parametrize(
    "loop", ['```python\n"""doc\n```\n', "```python\nimport torch\n```\n", PROSE, "Done.\n", "x = (\n", fence(DEMO)]
)
def test_an_answer_in_front_of_a_loop_is_found(loop: str) -> None:
    found = extract(Completion(text=fence(CODE) + filled(loop), finish_reason="length", model="m"))
    assert isinstance(found, Candidate)
    assert (found.code.strip(), found.rule) == (CODE.strip(), "fence")


def test_an_answer_that_was_not_read_whole_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kb_ray.extract._READINGS", 0.6)
    monkeypatch.setattr("kb_ray.extraction.parsing._LEAST", 0)
    text = fence('"""\n' + "x\n" * 200) + fence(CODE)
    found = extract(Completion(text=text, finish_reason="stop", model="m"))
    assert isinstance(found, Candidate)
    assert (found.code.strip(), found.rule) == (CODE.strip(), "fence+partly")
