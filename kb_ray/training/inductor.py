"""Kernels as PyTorch's compiler wrote them, in plain PyTorch: allocations, grids and views without its private API.

KernelBook's kernels are of this kind, and a verifier refuses their imports. Kernels themselves stay as they are, and so
does all that is not known here. Syntax only; nothing is run.
"""

from __future__ import annotations

import ast
import re

_PRIVATE = ("torch._inductor", "torch._C", "torch._dynamo")
_DEVICE_FUNCTIONS = "torch._inductor.runtime.triton_helpers"
"""Module of `libdevice` and others that kernels call: it may stay."""
_EMPTY = {"empty_strided_cuda", "empty_strided_cpu"}
_DROPPED = {"assert_size_stride", "get_raw_stream", "set_device", "assert_alignment"}
"""Calls that check or announce, and compute nothing."""
_ALIASES = _EMPTY | _DROPPED | {"reinterpret_tensor", "alloc_from_pool"}
_BLOCKS = ("XBLOCK", "YBLOCK", "ZBLOCK")
_DEVICE = "device"
_LIBRARY = re.compile(r"\b(extern_kernels|aten)\.")
"""How the compiler calls what PyTorch computes itself."""


def computed_by_pytorch(code: str) -> bool:
    """Whether code leaves work to PyTorch the way that its compiler does, beside whatever kernels it has."""
    return _LIBRARY.search(code) is not None


def in_plain_pytorch(code: str) -> str:
    """The program without the compiler's own calls; as it was where it has none, or cannot be parsed."""
    if not any(module in code for module in _PRIVATE):
        return code
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code
    plain = ast.fix_missing_locations(_Plain().visit(tree))
    return ast.unparse(plain) + "\n"


class _Plain(ast.NodeTransformer):
    """Rewrites what is known; each method takes and gives back nodes as `ast` has it."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        module = node.module or ""
        kept = [a for a in node.names if _DEVICE_FUNCTIONS in (module, f"{module}.{a.name}")]
        if not module.startswith(_PRIVATE):
            return node
        return ast.ImportFrom(module, kept, node.level) if kept else None

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        kept = [a for a in node.names if not a.name.startswith(_PRIVATE)]
        return ast.Import(kept) if kept else None

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if names & _ALIASES or _called(node.value) in _DROPPED:
            return None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _called(node.value) in _DROPPED else self.generic_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.body if _called(node.items[0].context_expr) in ("_DeviceGuard", "device") else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        allocates = any(_called(found) in _EMPTY for found in ast.walk(node))
        self.generic_visit(node)
        given = _first_given(node) if allocates else None
        if given is not None:
            place, name = given
            node.body.insert(place + 1, ast.parse(f"{_DEVICE} = {name}.device").body[0])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Subscript) and _called(node.func.slice) == "grid":
            node.func.slice = _grid(node.func.slice, node)
        self.generic_visit(node)
        name = _called(node)
        if name in _EMPTY and len(node.args) == 3:
            return ast.parse(
                f"torch.empty_strided({ast.unparse(node.args[0])}, {ast.unparse(node.args[1])}, "
                f"dtype={ast.unparse(node.args[2])}, device={_DEVICE})",
                mode="eval",
            ).body
        if name == "reinterpret_tensor" and len(node.args) == 4:
            tensor, size, stride, offset = map(ast.unparse, node.args)
            start = "" if offset == "0" else f", {tensor}.storage_offset() + {offset}"
            return ast.parse(f"{tensor}.as_strided({size}, {stride}{start})", mode="eval").body
        return node


def _called(node: ast.AST) -> str | None:
    """`f` of `f(...)` and of `a.b.f(...)`."""
    if not isinstance(node, ast.Call):
        return None
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


def _first_given(node: ast.FunctionDef) -> tuple[int, str] | None:
    """(place, first name) of the statement that takes a function's list of tensors apart: `a, b = args`."""
    for place, statement in enumerate(node.body):
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_])], value=ast.Name()):
                return place, name
    return None


def _grid(numels: ast.AST, launch: ast.Call) -> ast.expr:
    """`grid(y, x)` as a tuple of programs by dimension, x first, each numel over its block."""
    assert isinstance(numels, ast.Call)
    blocks = {keyword.arg: ast.unparse(keyword.value) for keyword in launch.keywords if keyword.arg in _BLOCKS}
    sizes = [ast.unparse(argument) for argument in reversed(numels.args)]
    counts = [f"triton.cdiv({size}, {blocks.get(name, '1')})" for size, name in zip(sizes, _BLOCKS, strict=False)]
    return ast.parse(f"({', '.join(counts)},)", mode="eval").body
