"""A parser with an allowance: what it has read it knows, and it reads no more than it may.

Keeps the work on an answer in proportion to its length, however its marks are nested or repeated. Does not know
what is parsed or why, nor what follows for the answer when the allowance is used up.
"""

from __future__ import annotations

import ast
import textwrap

from kb_ray.extraction.syntax import Outline, outlined, parse

_LEAST = 65_536
"""Characters that may always be parsed: short answers are read whole, whatever their marks are like."""


class Parser:
    """Parses code once; behind its allowance nothing counts as code any more."""

    def __init__(self) -> None:
        self.exhausted = False
        """Whether something was left unread."""
        self._left = _LEAST
        self._known: dict[str, ast.Module | SyntaxError | None] = {}
        self._outlines: dict[str, Outline] = {}

    def allow(self, characters: int) -> None:
        """Sets what may be parsed from here on, in characters; what is known already costs nothing."""
        self._left = max(characters, _LEAST)

    def tree(self, code: str) -> ast.Module | SyntaxError | None:
        """As `syntax.parse`; None too where the allowance does not suffice."""
        if code in self._known:
            return self._known[code]
        if not self._take(len(code)):
            return None
        found = self._known[code] = parse(code)
        return found

    def parses(self, code: str) -> bool:
        """Whether code parses once the indentation that all of it shares is taken away."""
        return isinstance(self.tree(textwrap.dedent(code)), ast.Module)

    def open_string(self, code: str) -> int | None:
        """Where the triple-quoted string begins that is still open at the end of the code; None where none is."""
        error = self.tree(code)
        if not isinstance(error, SyntaxError) or "unterminated triple-quoted" not in str(error.msg):
            return None
        start = 0
        for _ in range((error.lineno or 1) - 1):
            start = code.find("\n", start) + 1
        return start + max((error.offset or 1) - 1, 0)

    def outline(self, code: str) -> Outline | None:
        """The outline of code that parses, else None."""
        tree = self.tree(code)
        if not isinstance(tree, ast.Module):
            return None
        if code not in self._outlines:
            self._outlines[code] = outlined(code, tree)
        return self._outlines[code]

    def _take(self, characters: int) -> bool:
        if characters > self._left:
            self.exhausted = True
            return False
        self._left -= characters
        return True
