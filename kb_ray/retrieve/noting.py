"""Notes the operations that a program comes by, each under the name that it has for its operands.

Does not know how a program is followed, nor what a call comes to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from kb_ray.retrieve.operations import BINARY, is_relu, makes, makes_zeros, operation, root
from kb_ray.retrieve.parts import FUNCTIONS, NUMBER, OPAQUE, Several, Spelled, Steps, Tensor

_ZEROS = "zeros"
_TWO_SIDED = frozenset(BINARY.values())
_OF_AN_OPERATION = 10
"""Steps that each operation takes: what is found is kept and compared, and so must stay shorter than the walk."""


class Notes:
    """`found` holds the operations so far. Raises Spent where the steps do not reach."""

    def __init__(self, steps: Steps) -> None:
        self.found: list[str] = []
        self._steps = steps
        self._inverse: Tensor | None = None
        """What the last operation gave, where that was 1 divided by something."""

    def _note(self, name: str, taken: list[Any]) -> Any:
        """The result of an operation; what computes nothing gives back what it took, or zeros and the like."""
        if makes(name):
            return Tensor(zero=name == _ZEROS)
        known = operation(name)
        if not known:
            return taken[0] if taken else Tensor()
        result = self._noted(known, taken)
        # A function that is handed on is called out of sight.
        return self._opaque([result]) if any(isinstance(value, FUNCTIONS) for value in taken) else result

    def _noted(self, name: str, taken: list[Any]) -> Tensor:
        """The result of an operation of that name. Spellings that only values tell apart become one here."""
        if name == "rsqrt":
            taken, name = [self._noted("sqrt", taken)], "reciprocal"
        if name == "reciprocal":
            taken, name = [NUMBER, *taken[:1]], "div"
        if name == "max" and any(isinstance(value, Tensor) and value.zero for value in taken):
            name = "relu"
        if name == "mul" and self._inverse is not None and any(value is self._inverse for value in taken):
            # x * (1 / y) is x / y.
            self.found.pop()
            name = "div"
        # x * f(x) is no scaling: what was used before comes in a second time.
        again = any(isinstance(value, Tensor) and value.used for value in taken)
        self._steps.take(_OF_AN_OPERATION)
        self.found.append(f"{name}+" if again and name in _TWO_SIDED else name)
        self._use(taken)
        result = Tensor()
        self._inverse = result if name == "div" and taken[:1] == [NUMBER] else None
        return result

    def _respelled(self, name: str, spelled: Spelled) -> str | None:
        """The name of what a call is under another one, for its operands; None where it is what it says."""
        operands, named = spelled
        if makes_zeros(name, operands):
            return _ZEROS
        if is_relu(name, operands, named):
            return "relu"
        if len(operands) != 2:
            return None
        if operation(name) == "mul" and self._alike(*operands):
            return "pow"
        return root(operands[1]) if operation(name) == "pow" else None

    def _alike(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two expressions are spelled alike."""
        for mine, theirs in zip(_nodes(one), _nodes(other), strict=False):
            self._steps.take()
            if _marks(mine) != _marks(theirs):
                return False
        return True

    def _use(self, taken: list[Any]) -> None:
        """What an operation took is used from now on."""
        for value in taken:
            inner = value.values if isinstance(value, Several) else [value]
            self._steps.take(len(inner))
            for each in inner:
                if isinstance(each, Tensor):
                    each.used = True

    def _opaque(self, taken: list[Any]) -> Tensor:
        """The result of what cannot be followed."""
        return self._noted(OPAQUE, taken)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    return (found for found in ast.walk(node) if not isinstance(found, ast.expr_context))


def _marks(node: ast.AST) -> tuple[Any, ...]:
    """A node without its children: its kind, how many of them there are where, and what else it holds."""
    fields = (value for name, value in ast.iter_fields(node) if name != "ctx")
    return type(node), *(
        len(value) if isinstance(value, list) else None if isinstance(value, ast.AST) else repr(value)
        for value in fields
    )
