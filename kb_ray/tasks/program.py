"""Reads a reference program without running it: its style, entry point, inputs and init convention.

Works on syntax alone, so that a stranger's file can be listed by the driver without being executed there.
Does not know where the text comes from, nor whether the program works.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from kb_ray.errors import TaskError
from kb_ray.records import TensorSpec
from kb_ray.tasks.entry_point import guess_class
from kb_ray.tasks.shapes import read_shapes
from kb_ray.tasks.signature import FunctionNode, Signature

FUNCTION = "reference_impl"
SHAPES = "input_shapes"
InitConvention = Literal["args", "args_kwargs"]


@dataclass(frozen=True)
class Program:
    """What a task record says of its reference program; see `records.Task`."""

    style: Literal["module", "function"]
    entry_point: str
    init_convention: InitConvention
    input_shapes: dict[str, TensorSpec] | None


def read_program(
    code: str,
    *,
    entry_point: str | None = None,
    shapes: object = None,
    init_convention: InitConvention | None = None,
) -> Program:
    """What `code` is: a `function` program (has `reference_impl`) or a `module` program (has a class).

    `entry_point` and `shapes` are what the source of the program says beside it; without them they are found
    in the code. Raises TaskError when it is no Python, defines no entry point or does not say its inputs.
    """
    tree = parse(code)
    defined = _top_level(tree)
    name = entry_point or _find_entry_point(tree, defined)
    node = defined.get(name)
    if isinstance(node, FunctionNode):
        return Program("function", name, "args", _function_shapes(node, defined, shapes))
    if not isinstance(node, ast.ClassDef):
        raise TaskError(f"defines no class or function {name!r} at top level")
    for needed in ("get_inputs", "get_init_inputs"):
        if needed not in defined:
            raise TaskError(f"defines {name!r} but no {needed}()")
    return Program("module", name, init_convention or _convention(defined["get_init_inputs"]), None)


@lru_cache(maxsize=1)
def parse(code: str) -> ast.Module:
    """The syntax tree of a program, not to be changed: the last one is kept. TaskError where it is no Python."""
    tree: ast.Module = _compiled(code, ast.PyCF_ONLY_AST)
    return tree


def check_syntax(code: str) -> None:
    """TaskError where a program is no Python; takes a third of the time that its tree takes. Nothing is run."""
    _compiled(code, 0)


def _compiled(code: str, flags: int) -> Any:
    if not code.strip():
        raise TaskError("is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(code, "<program>", "exec", flags, dont_inherit=True)
    except SyntaxError as error:
        raise TaskError(f"is no valid Python: line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"is no valid Python: {error or type(error).__name__}") from error


def _top_level(tree: ast.Module) -> dict[str, ast.AST]:
    """What each top-level name was last defined as: a function, a class, or an assigned expression."""
    defined: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            defined.update({t.id: node.value for t in node.targets if isinstance(t, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            defined[node.target.id] = node.value
    return defined


def _find_entry_point(tree: ast.Module, defined: Mapping[str, ast.AST]) -> str:
    if isinstance(defined.get(FUNCTION), FunctionNode):
        return FUNCTION
    if isinstance(defined.get("Model"), ast.ClassDef):
        return "Model"
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    name = guess_class(classes, defined.get("get_inputs"), defined.get("get_init_inputs"))
    if name is None:
        raise TaskError(f"defines neither {FUNCTION}() nor a class with forward()")
    return name


def _function_shapes(
    function: FunctionNode, defined: Mapping[str, ast.AST], shapes: object
) -> dict[str, TensorSpec] | None:
    """Inputs from `shapes`, else from a literal in the program; None where its `get_inputs()` makes them."""
    if shapes is None and SHAPES in defined:
        try:
            shapes = ast.literal_eval(defined[SHAPES])
        except (ValueError, TypeError) as error:
            raise TaskError(f"its {SHAPES} is no literal dict") from error
    if shapes is None:
        if "get_inputs" not in defined:
            raise TaskError(f"defines {function.name!r} but neither {SHAPES} nor get_inputs()")
        return None
    specs = read_shapes(shapes)
    if not Signature.of(function).fits(0, specs):
        raise TaskError(f"{SHAPES} names {', '.join(specs)}, which does not suit {function.name}()")
    return specs


def _convention(node: ast.AST) -> InitConvention:
    """`args_kwargs` where every `return` of get_init_inputs is a literal `[[..], {..}]`."""
    returns = [r.value for r in ast.walk(node) if isinstance(r, ast.Return)]
    pairs = [
        isinstance(value, (ast.List, ast.Tuple))
        and len(value.elts) == 2
        and isinstance(value.elts[0], (ast.List, ast.Tuple))
        and isinstance(value.elts[1], ast.Dict)
        for value in returns
    ]
    return "args_kwargs" if pairs and all(pairs) else "args"
