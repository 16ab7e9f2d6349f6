"""Parameters of a function as its source declares them, and whether a call fits. Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Signature:
    """What a function or method takes; `self` is left out of a method's."""

    positional: tuple[str, ...]
    """Names that can be given by position, in order."""
    required: frozenset[str]
    """Names without a default, keyword-only ones included."""
    named: frozenset[str]
    """All names that can be given by keyword."""
    any_positional: bool
    any_keyword: bool

    @classmethod
    def of(cls, node: FunctionNode, *, method: bool = False) -> Signature:
        """Signature of a definition."""
        arguments = node.args
        positional = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
        optional = set(positional[len(positional) - len(arguments.defaults) :])
        keyword_only = [arg.arg for arg in arguments.kwonlyargs]
        optional |= {
            name for name, default in zip(keyword_only, arguments.kw_defaults, strict=True) if default is not None
        }
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
        positional = positional[1:] if method and not static else positional
        by_keyword = {arg.arg for arg in arguments.args} & set(positional) | set(keyword_only)
        return cls(
            positional=tuple(positional),
            required=frozenset({*positional, *keyword_only} - optional),
            named=frozenset(by_keyword),
            any_positional=arguments.vararg is not None,
            any_keyword=arguments.kwarg is not None,
        )

    def fits(self, count: int, keywords: Collection[str] = ()) -> bool:
        """Whether a call with `count` positional arguments and these keywords would be accepted."""
        if count > len(self.positional) and not self.any_positional:
            return False
        by_position, by_name = set(self.positional[:count]), self.named & set(keywords)
        if by_position & by_name or not (self.any_keyword or by_name == set(keywords)):
            return False
        return self.required <= by_position | by_name
