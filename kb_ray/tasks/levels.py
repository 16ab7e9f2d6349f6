"""How hard a task is, guessed from its program: 1 a single operation, 2 a fusion of several, 3 an architecture.

For tasks whose source gives no level. Looks at syntax only, so it is a guess; whether the program works is
not its business.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kb_ray.errors import TaskError
from kb_ray.tasks.program import parse
from kb_ray.tasks.signature import FunctionNode

MANY_TOKENS = 50
"""Names, constants and operators of the code that computes, beyond which it counts as a fusion."""
MANY_LAYERS = 6
"""Layers made in constructors, from which on a module counts as an architecture."""
_FUSED = re.compile(r"\b(fused?|fusion|fuses|combined?|combines|combination)\b", re.IGNORECASE)
_WHOLE = re.compile(r"attention|transformer|^(lstm|gru|rnn)(cell)?$", re.IGNORECASE)
_GLUE = frozenset({
    "append", "bool", "clone", "contiguous", "cpu", "cuda", "detach", "device", "dim", "double", "enumerate",
    "expand", "expand_as", "extend", "flatten", "float", "format", "getattr", "half", "hasattr", "int",
    "is_contiguous", "isinstance", "item", "len", "list", "long", "numel", "permute", "print", "range",
    "repeat", "reshape", "shape", "size", "split", "squeeze", "str", "super", "to", "transpose", "tuple",
    "type", "type_as", "unsqueeze", "view", "zip",
})  # fmt: skip
"""Calls that move or describe data, and compute nothing."""
_SHAPING = frozenset({
    "expand", "flatten", "permute", "repeat", "reshape", "split", "squeeze", "transpose", "unsqueeze", "view",
})  # fmt: skip
"""Those of them whose arguments, as methods of a tensor, are sizes."""
_NO_LAYER = re.compile(
    r"^(Sequential|ModuleList|ModuleDict|ParameterList|ParameterDict|OrderedDict|Identity|Flatten|Unflatten|Variable)$"
    r"|(Parameter|Tensor|Error|Exception|Warning)$"
)
"""Capitalised calls of constructors that make nothing which computes."""
_CHAINS = frozenset({"Sequential", "ModuleList"})
_HOLDING = _CHAINS | {"append", "extend", "insert", "add_module", "__init__"}
"""Calls by which a chain, or the list it is made of, is given layers; `__init__` is that of a chain's subclass."""
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
_NETWORK = re.compile(
    r"^(torchvision\.models\..+|timm\.create_model|torch\.hub\.load"
    r"|transformers\.([a-z]\w*\.)*[A-Z]\w*(Model|For[A-Z])\w*(\.(from_config|from_pretrained|_from_config))?)$"
)
"""Full names of what makes a whole network that is defined elsewhere."""
_INPUTS = frozenset({"get_inputs", "get_init_inputs"})


@dataclass(frozen=True)
class Shape:
    """What of a program decides its level. Counts are over the entry point and what of its file it uses."""

    operators: int
    """`+`, `*`, `@` and the like in code that runs at each call."""
    calls: int
    """Calls there that compute: torch functions, tensor methods, layers, each layer of a `Sequential` too."""
    tokens: int
    """Names, constants and operators there."""
    layers: int
    """Layers made in constructors, those of loops and comprehensions counted once."""
    stacked: bool
    """Layers are made in a loop of a constructor: as many as it is told."""
    blocks: int
    """Classes of the file that others are built of."""
    whole: bool
    """A layer or function that is an architecture by itself, such as attention, an LSTM or a model of torchvision."""
    custom: bool
    """An algorithm of its own: a loop around computing code, or a gradient written by hand."""
    says_fused: bool
    """A name or docstring speaks of something fused or combined."""

    @property
    def level(self) -> int:
        """1, 2 or 3."""
        if self.whole or self.custom or self.blocks or self.stacked or self.layers >= MANY_LAYERS:
            return 3
        several = self.calls + self.operators >= 2
        return 2 if several or self.says_fused or self.tokens > MANY_TOKENS else 1


def level_of(code: str, entry_point: str | None = None) -> int:
    """Level of a reference program; 1 where it cannot be parsed.

    `entry_point`: the class or function the task is about; without it everything in the file counts.
    """
    try:
        return shape_of(parse(code), entry_point).level
    except (TaskError, RecursionError):
        return 1


def shape_of(tree: ast.Module, entry_point: str | None = None) -> Shape:
    """The counts of a parsed program."""
    used = _used(tree, entry_point)
    bodies = [body for bodies in used.values() for body in bodies]
    nodes = [node for body in bodies if not body.constructs for node in body.nodes]
    kinds = Counter(map(type, nodes))
    called = [name for node in nodes if isinstance(node, ast.Call) and (name := _called(node))]
    constructors = [body for body in bodies if body.constructs]
    made = [name for body in constructors for name in _made(body.nodes)]
    stacked = any(any(_made(_parts(node))) for body in constructors for node in body.nodes if isinstance(node, _LOOPS))
    held = max(sum(map(_held, constructors)), 0)
    return Shape(
        operators=kinds[ast.BinOp] + kinds[ast.AugAssign],
        calls=sum(name not in _GLUE and name not in used for name in called) + held,
        tokens=sum(kinds[kind] for kind in _LEAVES),
        layers=len(made),
        stacked=stacked,
        blocks=len({name for name in made if name in used}),
        whole=any(map(_WHOLE.search, [*called, *made])) or any(map(_NETWORK.match, _full_names(tree, used))),
        custom=any(_is_custom(body, chain=held > 0 and not stacked) for body in bodies),
        says_fused=any(_FUSED.search(body.words) for body in bodies),
    )


@dataclass(frozen=True)
class _Body:
    """A function, or a method with its class, and all that stands in it."""

    name: str
    nodes: tuple[ast.AST, ...]
    words: str
    """Names and docstrings in which the author says what the code is."""
    constructs: bool
    """Runs when the object is made, not at each call."""


def _used(tree: ast.Module, entry_point: str | None) -> dict[str, list[_Body]]:
    """The entry point with what of its file it names, and what that names; without one, all but the inputs."""
    defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | FunctionNode)}
    queue = [entry_point] if entry_point in defined else [name for name in defined if name not in _INPUTS]
    used: dict[str, list[_Body]] = {}
    while queue:
        name = str(queue.pop())
        if name in used or name not in defined:
            continue
        used[name] = _bodies(defined[name])
        queue += [node.id for body in used[name] for node in body.nodes if isinstance(node, ast.Name)]
        queue += [base.id for base in getattr(defined[name], "bases", ()) if isinstance(base, ast.Name)]
    return used


def _bodies(node: ast.ClassDef | FunctionNode) -> list[_Body]:
    if isinstance(node, FunctionNode):
        return [_body(node, "")]
    words = f"{_spaced(node.name)} {ast.get_docstring(node, clean=False) or ''}"
    return [_body(item, words) for item in node.body if isinstance(item, FunctionNode)]


def _body(function: FunctionNode, words: str) -> _Body:
    said = f"{words} {_spaced(function.name)} {ast.get_docstring(function, clean=False) or ''}"
    constructs = function.name.startswith("_") and function.name != "__call__"
    return _Body(function.name, tuple(_inside(function)), said, constructs)


def _inside(function: FunctionNode) -> Iterator[ast.AST]:
    """Every node of a function's body but docstrings, indices of subscripts, and shapes that methods are given."""
    # Written out: data sets have tens of thousands of programs, and ast.walk takes four times the time.
    stack: list[Any] = list(function.body)
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind in _NO_NODES or (kind is ast.Expr and type(node.value) is ast.Constant):
            continue
        yield node
        if kind is ast.Subscript:
            stack.append(node.value)
        elif kind is ast.Call and _only_moves(node.func):
            stack.append(node.func.value)
        elif kind not in _LEAVES:
            for name in kind._fields:
                value = getattr(node, name, None)
                if type(value) is list:
                    stack += value
                else:
                    stack.append(value)


def _only_moves(called: ast.expr) -> bool:
    """Whether this is a method such as `x.view`, whose arguments are sizes; `torch.reshape` is given the data, and so
    is a layer that somebody called `self.expand`."""
    if not isinstance(called, ast.Attribute) or called.attr not in _SHAPING:
        return False
    return not (isinstance(called.value, ast.Name) and called.value.id in ("torch", "self"))


_NO_NODES = frozenset({ast.Load, ast.Store, ast.Del, str, int, type(None)})
"""What stands in nodes beside those that count."""
_LEAVES = frozenset({ast.Name, ast.Constant, *ast.operator.__subclasses__()})
"""Tokens."""


def _called(node: ast.Call) -> str | None:
    """`conv2d` of `F.conv2d(...)`, `self.conv2d(...)`, `self.conv2d[0](...)` and `conv2d(...)`."""
    called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    match called:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


def _made(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of the layers' classes, capitalised by custom, that are called."""
    return (name for node in nodes if (name := _layer(node)))


def _layer(node: ast.AST) -> str | None:
    name = _called(node) if isinstance(node, ast.Call) else None
    return name if name and name[0].isupper() and not _NO_LAYER.search(name) else None


def _held(constructor: _Body) -> int:
    """How many more layers a call of its chains runs than it is calls: those in chains and lists, less the chains."""
    inner = {part for node in constructor.nodes for value in _given(node) for part in ast.walk(value)}
    outermost = {node for node in constructor.nodes if _is_chain(node)} - inner
    return sum(map(bool, map(_layer, inner))) - len(outermost)


def _is_chain(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _called(node) in _CHAINS


def _given(node: ast.AST) -> list[ast.expr]:
    """What is put into a chain or list; `self.add_module(...)` gives the module a layer that it calls by name."""
    match node:
        case ast.List():
            return node.elts
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"))):
            return []
        case ast.Call() if _called(node) in _HOLDING:
            return [*node.args, *(keyword.value for keyword in node.keywords)]
    return []


def _parts(loop: ast.AST) -> Iterator[ast.AST]:
    """What a loop does at each round."""
    repeated = loop.body if isinstance(loop, ast.For | ast.While) else [getattr(loop, "elt", loop)]
    return (node for part in repeated for node in ast.walk(part))


def _is_custom(body: _Body, *, chain: bool) -> bool:
    """A gradient by hand, or a loop around computing code; where the layers of a `chain` are counted one by one, a
    loop that only calls them is none."""
    if body.name == "backward":
        return True
    loops = [] if body.constructs else [node for node in body.nodes if isinstance(node, ast.For | ast.While)]
    return any(_computes(loop, _layers_run(loop) if chain else set()) for loop in loops)


def _computes(loop: ast.AST, layers: set[str]) -> bool:
    """Whether a round of a loop does more than to call `layers`."""
    return any(
        isinstance(node, ast.BinOp)
        or (isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in layers))
        for node in _parts(loop)
    )


def _layers_run(loop: ast.For | ast.While) -> set[str]:
    """`layer` of `for layer in self.layers`."""
    if not isinstance(loop, ast.For) or not any(getattr(node, "id", "") == "self" for node in ast.walk(loop.iter)):
        return set()
    return {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def _full_names(tree: ast.Module, used: dict[str, list[_Body]]) -> Iterator[str]:
    """What is called or inherited from in the code that is used, at module level too, by the names of its packages."""
    plain = [stmt for stmt in tree.body if not isinstance(stmt, ast.ClassDef | FunctionNode)]
    nodes = [node for stmt in plain for node in ast.walk(stmt)]
    nodes += [node for bodies in used.values() for body in bodies for node in body.nodes]
    origins: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            origins |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom):
            origins |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    named = [node.func for node in nodes if isinstance(node, ast.Call)]
    named += [base for stmt in tree.body if isinstance(stmt, ast.ClassDef) and stmt.name in used for base in stmt.bases]
    for expression in named:
        rest: list[str] = []
        while isinstance(expression, ast.Attribute):
            rest.insert(0, expression.attr)
            expression = expression.value
        if isinstance(expression, ast.Name):
            yield ".".join([origins.get(expression.id, expression.id), *rest])


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)
