"""Which operations a program computes, in order: what makes two programs one task whatever their spelling and numbers.

Reads syntax trees, runs nothing. Only what `forward`, or the function, reaches counts: helpers, methods and modules of
the file are followed where they are called. Numbers, names and how expressions are split into lines make no difference.
Operands do not count either, so that programs alike but for wiring are one; on that side a leak filter may err. What
cannot be followed is a `?`, which is like nothing, not even like another `?`.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from kb_ray.retrieve.parts import OPAQUE, Program, Spent, Steps, with_attributes
from kb_ray.retrieve.walking import Walk
from kb_ray.tasks.entry_point import guess_class

_LEAST_OF_A_PART = 3
"""Operations from which a part of a file beside its entry point counts as a program: smaller ones are everywhere."""
_MOST_STEPS = 100_000
"""Steps that a file is followed: small ones can be written that would never end, or fill all memory."""
_RUN = 3
_LEAST_RUNS = 6
"""Runs from which a share of them says something."""
_HELPERS = frozenset({"get_inputs", "get_init_inputs"})
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@lru_cache(maxsize=4096)
def operations(code: str, entry_point: str | None = None) -> str:
    """A line for each program of a file, its operations with blanks between them: `linear relu mul sum`.

    `entry_point`: class or function that the file is about, where it is known; else it is guessed as a task's is. The
    first line is of the entry point, the others of further classes and functions with at least three operations.
    Empty where the entry point computes nothing or the file does not parse.
    """
    try:
        tree = with_attributes(ast.parse(code.removeprefix("\ufeff")))
        program = Program(tree)
        known = entry_point in program.classes or entry_point in program.functions
        entry = entry_point if entry_point is not None and known else _entry(tree, program)
        steps = Steps(_MOST_STEPS)
        first = _line(program, entry, steps)
        others = [_line(program, name, steps) for name in (*program.classes, *program.functions) if name != entry]
    except _UNREADABLE:
        return ""
    found = [line for line in others if line.count(" ") + 1 >= _LEAST_OF_A_PART]
    return "\n".join(dict.fromkeys([first, *found])) if first else ""


def programs(lines: str) -> list[str]:
    """The programs of what `operations` gave, that of the entry point first."""
    return lines.split("\n") if lines else []


def entry_of(lines: str) -> str:
    """The operations of the entry point; empty where there are none."""
    return lines.partition("\n")[0]


def telling(lines: str) -> list[str]:
    """The programs of which all was followed: two are one where these are equal."""
    return [line for line in programs(lines) if OPAQUE not in line]


def telling_entry(lines: str) -> str:
    """The operations of the entry point; empty where there are none, or not all of it was followed."""
    line = entry_of(lines)
    return "" if OPAQUE in line else line


def contained(task: str, example: str) -> float:
    """Share, 0 to 1, of the task's runs of three operations that one program of the example has; both as `operations`
    gives them. 0 where the task is too short to tell.
    """
    wanted = _runs(entry_of(task))
    if len(wanted) < _LEAST_RUNS:
        return 0.0
    return max((len(_followed(wanted & _runs(line))) / len(wanted) for line in programs(example)), default=0.0)


@lru_cache(maxsize=8192)
def _runs(line: str) -> frozenset[tuple[str, ...]]:
    words = line.split()
    return frozenset(tuple(words[i : i + _RUN]) for i in range(len(words) - _RUN + 1))


def _followed(runs: frozenset[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [run for run in runs if OPAQUE not in run]


def _entry(tree: ast.Module, program: Program) -> str:
    """Name of what the file is about: as a task's entry point is found, else its last class or function."""
    if "reference_impl" in program.functions:
        return "reference_impl"
    if "Model" in program.classes:
        return "Model"
    inputs = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in _HELPERS}
    guessed = guess_class(list(program.classes.values()), inputs.get("get_inputs"), inputs.get("get_init_inputs"))
    return guessed or next(reversed([*program.functions]), "")


def _line(program: Program, name: str, steps: Steps) -> str:
    """The operations of one program of a file, as far as the steps that are left reach."""
    walk = Walk(program, steps)
    try:
        if name in program.classes:
            walk.module(program.classes[name])
        elif name in program.functions:
            walk.function(program.functions[name])
    except Spent:
        pass
    return " ".join(walk.found)
