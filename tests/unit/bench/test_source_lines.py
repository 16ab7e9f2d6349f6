"""A line that is shown for an error is the line Python counted, whatever characters the source holds."""

from __future__ import annotations

import ast

import pytest

from kb_ray.bench.child.blame import blame_exception
from kb_ray.bench.static import check_static
from kb_ray.prompts.details import details
from kb_ray.records import ErrorDetail, Stage, Status, Verdict

BROKEN = "y = (1 +"
# None of these ends a line of Python, and str.splitlines takes each for the end of one.
WITHIN = [
    "# a\u2028b\n",
    "# a\u2029b\n",
    "# a\x85b\n",
    "s = 'a\x1cb'\n",
    "\x0c\n",
    "# a\x0bb\n",
    "'''a\x1d\x1eb\n'''\n",
]
ENDS = ["a = 1\r\n", "a = 1\r", "a = 1\n"]


def python_line(code: str) -> int:
    with pytest.raises(SyntaxError) as raised:
        ast.parse(code)
    assert raised.value.lineno
    return raised.value.lineno


@pytest.mark.parametrize("above", [*WITHIN, *ENDS])
def test_the_line_shown_is_the_line_in_error(above: str) -> None:
    code = f"{above}{BROKEN}\n"
    line = python_line(code)
    found = check_static(code)
    assert found is not None
    assert found.error.line == line
    assert found.error.detail.startswith(f"{line} | {BROKEN}\n")
    blamed = blame_exception({"type": "E", "message": "m", "line": line}, "call", code, False)[2]
    assert blamed.line == line
    assert f"line {line}: {BROKEN}" in blamed.detail
    error = ErrorDetail(category="SYNTAX ERROR", message="it failed", line=line)
    told = details(Verdict.of(Status.SYNTAX_ERROR, Stage.STATIC, error=error), code)
    assert told.split("\n")[1] == f"{line} | {BROKEN}"
