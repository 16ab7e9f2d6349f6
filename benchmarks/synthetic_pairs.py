"""Pairs of a PyTorch program and a Triton file of 50 families of operations, in any number, each another program.

No name, docstring or comment tells the family: names are drawn, sizes and layout too, and each family has several
spellings in PyTorch. The Triton files parse and have a kernel; whether they are right is nobody's concern here.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# Family -> spellings: "expression" or "constructor => expression", where x, y are inputs, m a module and N, K, C sizes.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "relu": ("F.relu(x)", "torch.relu(x)", "x.clamp(min=0.0)", "nn.ReLU() => m(x)"),
    "gelu": ("F.gelu(x)", "nn.GELU() => m(x)", "F.gelu(x, approximate='tanh')"),
    "silu": ("F.silu(x)", "nn.SiLU() => m(x)", "x * torch.sigmoid(x)"),
    "sigmoid": ("torch.sigmoid(x)", "nn.Sigmoid() => m(x)", "F.sigmoid(x)"),
    "tanh": ("torch.tanh(x)", "nn.Tanh() => m(x)", "x.tanh()"),
    "leaky_relu": ("F.leaky_relu(x, 0.1)", "nn.LeakyReLU(0.2) => m(x)"),
    "elu": ("F.elu(x)", "nn.ELU() => m(x)", "F.elu(x, alpha=0.5)"),
    "softplus": ("F.softplus(x)", "nn.Softplus() => m(x)"),
    "hardtanh": ("F.hardtanh(x)", "nn.Hardtanh(-2.0, 2.0) => m(x)"),
    "mish": ("F.mish(x)", "nn.Mish() => m(x)"),
    "softmax": ("F.softmax(x, dim=-1)", "torch.softmax(x, dim=1)", "nn.Softmax(dim=-1) => m(x)"),
    "log_softmax": ("F.log_softmax(x, dim=-1)", "torch.log_softmax(x, dim=1)", "nn.LogSoftmax(dim=1) => m(x)"),
    "logsumexp": ("torch.logsumexp(x, dim=-1)", "x.logsumexp(dim=1)"),
    "layer_norm": ("nn.LayerNorm(N) => m(x)", "F.layer_norm(x, (x.shape[-1],))"),
    "batch_norm": ("nn.BatchNorm2d(C) => m(x)", "nn.BatchNorm1d(C) => m(x)"),
    "group_norm": ("nn.GroupNorm(4, C) => m(x)", "F.group_norm(x, 8)"),
    "instance_norm": ("nn.InstanceNorm2d(C) => m(x)", "F.instance_norm(x)"),
    "rms_norm": ("x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)", "nn.RMSNorm(N) => m(x)"),
    "matmul": ("torch.matmul(x, y)", "x @ y", "torch.mm(x, y)"),
    "bmm": ("torch.bmm(x, y)", "x.bmm(y)"),
    "linear": ("nn.Linear(N, C) => m(x)", "nn.Linear(N, C, bias=False) => m(x)"),
    "conv1d": ("nn.Conv1d(C, N, K) => m(x)", "nn.Conv1d(C, N, K, padding=1) => m(x)"),
    "conv2d": ("nn.Conv2d(C, N, K) => m(x)", "nn.Conv2d(C, N, K, stride=2) => m(x)"),
    "conv3d": ("nn.Conv3d(C, N, K) => m(x)", "nn.Conv3d(C, N, K, padding=1) => m(x)"),
    "conv_transpose2d": ("nn.ConvTranspose2d(C, N, K) => m(x)", "nn.ConvTranspose2d(C, N, K, stride=2) => m(x)"),
    "max_pool2d": ("F.max_pool2d(x, K)", "nn.MaxPool2d(K) => m(x)"),
    "avg_pool2d": ("F.avg_pool2d(x, K)", "nn.AvgPool2d(K) => m(x)"),
    "adaptive_avg_pool": ("F.adaptive_avg_pool2d(x, 1)", "nn.AdaptiveAvgPool2d((K, K)) => m(x)"),
    "sum": ("torch.sum(x, dim=-1)", "x.sum(dim=1)", "x.sum(1, keepdim=True)"),
    "mean": ("torch.mean(x, dim=-1)", "x.mean(dim=1)", "x.mean(1, keepdim=True)"),
    "max": ("torch.max(x, dim=-1).values", "x.amax(dim=1)", "torch.amax(x, dim=-1)"),
    "argmax": ("torch.argmax(x, dim=-1)", "x.argmax(dim=1)"),
    "cumsum": ("torch.cumsum(x, dim=-1)", "x.cumsum(dim=1)"),
    "cumprod": ("torch.cumprod(x, dim=-1)", "x.cumprod(dim=1)"),
    "std": ("torch.std(x, dim=-1)", "x.std(dim=1)"),
    "norm": ("torch.norm(x, dim=-1)", "torch.linalg.vector_norm(x, dim=-1)", "x.norm(dim=1)"),
    "mse_loss": ("F.mse_loss(x, y)", "nn.MSELoss() => m(x, y)", "torch.mean((x - y) ** 2)"),
    "cross_entropy": ("F.cross_entropy(x, y)", "nn.CrossEntropyLoss() => m(x, y)"),
    "kl_div": ("F.kl_div(x, y, reduction='batchmean')", "nn.KLDivLoss(reduction='batchmean') => m(x, y)"),
    "smooth_l1": ("F.smooth_l1_loss(x, y)", "nn.SmoothL1Loss() => m(x, y)", "F.smooth_l1_loss(x, y, beta=0.5)"),
    "cosine": ("F.cosine_similarity(x, y, dim=-1)", "nn.CosineSimilarity(dim=1) => m(x, y)"),
    "embedding": ("nn.Embedding(N, C) => m(x)", "F.embedding(x, y)"),
    "gather": ("torch.gather(x, 1, y)", "x.gather(-1, y)"),
    "topk": ("torch.topk(x, K).values", "x.topk(K, dim=-1)[0]"),
    "transpose": ("x.transpose(0, 1).contiguous()", "x.permute(1, 0).contiguous()"),
    "concatenate": ("torch.cat([x, y], dim=1)", "torch.cat((x, y), dim=-1)", "torch.concat([x, y], dim=1)"),
    "pad": ("F.pad(x, (K, K))", "nn.ConstantPad1d(K, 0.0) => m(x)"),
    "attention": ("F.scaled_dot_product_attention(x, y, y)", "nn.MultiheadAttention(N, 4) => m(x, y, y)[0]"),
    "lstm": ("nn.LSTM(N, C) => m(x)[0]", "nn.LSTM(N, C, batch_first=True) => m(x)[0]"),
    "interpolate": ("F.interpolate(x, scale_factor=2)", "nn.Upsample(scale_factor=2) => m(x)"),
}
_SYLLABLES = tuple("bacodifugahejikolumeniorpaquriso"[i : i + 2] for i in range(0, 32, 2))

_PYTORCH = """{imports}


class {cls}(nn.Module):
    def __init__(self{sizes}):
        {parent}{made}

    def forward(self, {inputs}):
{body}


def get_inputs():
    return [{values}]


def get_init_inputs():
    return [{given}]
"""
_TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def {kernel}({p}, {q}, {n}, {b}: tl.constexpr):
    {o} = tl.program_id(0) * {b} + tl.arange(0, {b})
    {v} = tl.load({p} + {o}, mask={o} < {n}, other=0.0)
    tl.store({q} + {o}, {v} * {factor}, mask={o} < {n})


def triton_kernel_wrapper({p}):
    {q} = torch.empty_like({p})
    {kernel}[(triton.cdiv({p}.numel(), {block}),)]({p}, {q}, {p}.numel(), {b}={block})
    return {q}
"""


class Pair(NamedTuple):
    """One example and what it is about."""

    family: str
    pytorch_code: str
    triton_code: str


def pairs(count: int, seed: int) -> Iterator[Pair]:
    """`count` pairs, the families in turn; the same for the same seed."""
    draw = random.Random(seed)
    names = list(FAMILIES)
    for index in range(count):
        family = names[index % len(names)]
        yield Pair(family, _pytorch(draw.choice(FAMILIES[family]), draw), _triton(draw))


def disguised(code: str, seed: int) -> str:
    """The same program in other clothes: own names, comments, docstrings, layout and imports' order are others."""
    draw = random.Random(seed)
    tree = ast.parse(code)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    own = {node.name for node in functions if isinstance(node, ast.ClassDef)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg != "self"}
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    own |= {_word(node) for node in stored if isinstance(node.ctx, ast.Store)}
    for function in functions:
        function.body.insert(0, ast.Expr(ast.Constant(f"About {_name(draw)}.")))
    text = ast.unparse(ast.fix_missing_locations(tree))
    for number, word in enumerate(sorted(own)):
        text = re.sub(rf"\b{word}\b", f"{_name(draw)}{number}", text)
    lines = [line if draw.random() < 0.6 else f"{line}  # {_name(draw)}" for line in text.splitlines()]
    return f"# {_name(draw)}\n" + ("\n\n" if draw.random() < 0.5 else "\n").join(lines) + "\n"


def _word(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _name(draw: random.Random) -> str:
    return "".join(draw.choice(_SYLLABLES) for _ in range(draw.randint(2, 4)))


def _names(draw: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[_name(draw)] = None
    return list(found)


def _pytorch(spelling: str, draw: random.Random) -> str:
    made, arrow, expression = spelling.rpartition(" => ")
    x, y, module, size, result, cls = _names(draw, 6)
    sizes = {"N": draw.choice((32, 64, 96, 128, 256)), "K": draw.choice((2, 3, 5)), "C": draw.choice((16, 24, 48))}
    renamed = {"x": x, "y": y, "m": f"self.{module}"} | {name: str(value) for name, value in sizes.items()}
    expression, made = _renamed(expression, renamed), _renamed(made, renamed)
    inputs = [x, y] if y in expression else [x]
    short, sized = draw.random() < 0.5, draw.random() < 0.3
    shape = ", ".join(str(draw.choice((4, 8, 16, 32, 64))) for _ in range(draw.randint(2, 4)))
    return _PYTORCH.format(
        imports=_imports(draw), cls=cls.title(), sizes=f", {size}" if sized else "",
        parent="super().__init__()" if short else f"super({cls.title()}, self).__init__()",
        made=f"\n        self.{module} = {made}" if arrow else "",
        inputs=", ".join(inputs), body=_body(expression, x, result, draw),
        values=", ".join(f"torch.randn({shape})" for _ in inputs), given="4" if sized else "",
    )  # fmt: skip


def _imports(draw: random.Random) -> str:
    functional = draw.choice(("import torch.nn.functional as F", "from torch.nn import functional as F"))
    return "\n".join(["import torch", draw.choice(("import torch.nn as nn", "from torch import nn")), functional])


def _body(expression: str, x: str, result: str, draw: random.Random) -> str:
    """The operation between steps that say nothing of the family, so that few programs are one under other names."""
    before = [f"{x} = {_step(x, draw)}" for _ in range(draw.randint(0, 2))]
    after = [f"{result} = {_step(result, draw)}" for _ in range(draw.randint(0, 2))]
    return "\n".join(f"        {line}" for line in [*before, f"{result} = {expression}", *after, f"return {result}"])


def _step(name: str, draw: random.Random) -> str:
    number = round(draw.uniform(0.1, 3.0), 2)
    return draw.choice((f"{name} * {number}", f"{name} + {number}", f"{number} - {name}", f"{name} / {number}"))


def _renamed(text: str, names: dict[str, str]) -> str:
    """`text` with its one-letter names replaced; those behind a dot or in a string stay."""
    return re.sub(r"(?<![\w.'])[xymNKC](?![\w'])", lambda found: names[found[0]], text)


def _triton(draw: random.Random) -> str:
    kernel, p, q, n, b, o, v = _names(draw, 7)
    block, factor = draw.choice((256, 512, 1024)), round(draw.uniform(0.5, 2.0), 3)
    return _TRITON.format(kernel=kernel, p=p, q=q, n=n, b=b.upper(), o=o, v=v, block=block, factor=factor)
