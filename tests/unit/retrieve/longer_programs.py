"""Programs as repositories hold them: submodules, lists of layers, helpers, losses, loops; each has a 0.5 or a kernel
size that could as well be another."""

from __future__ import annotations

_BEGIN = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"

LONGER = {
    "a residual block": _BEGIN
    + """class Unit(nn.Module):
    def __init__(self, width, act=nn.SiLU):
        super().__init__()
        self.first = nn.Conv2d(width, width, kernel_size=3, padding=1)
        self.second = nn.Conv2d(width, width, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.act = act()

    def forward(self, x):
        y = self.act(self.norm(self.first(x)))
        return x + self.second(y)
""",
    "a stack of layers": _BEGIN
    + """class Tower(nn.Module):
    def __init__(self, widths=(8, 16, 4)):
        super().__init__()
        self.layers = nn.ModuleList()
        for before, after in zip(widths, widths[1:]):
            self.layers.append(nn.Linear(before, after))
        self.rate = 0.5

    def forward(self, x):
        for layer in self.layers:
            x = F.leaky_relu(layer(x), self.rate)
        return F.normalize(x, dim=-1)
""",
    "a loss": _BEGIN
    + """class Focus(nn.Module):
    def __init__(self, alpha=0.5, gamma=2):
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, scores, wanted):
        plain = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        sure = torch.exp(-plain)
        return (self.alpha * (1 - sure) ** self.gamma * plain).mean()
""",
    "attention by hand": _BEGIN
    + """class Heads(nn.Module):
    def __init__(self, size, heads, dropout=0.5):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(size, size) for _ in range(3))
        self.heads = heads
        self.drop = nn.Dropout(dropout)

    def split(self, x):
        b, n, d = x.shape
        return x.view(b, n, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        y = self.drop(scores.softmax(dim=-1)) @ v
        return y.transpose(1, 2).reshape(x.shape)
""",
    "a block of blocks": _BEGIN
    + """class Inner(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate, self.up = nn.Linear(size, 2 * size), nn.Linear(size, 2 * size)

    def forward(self, x):
        return F.gelu(self.gate(x)) * self.up(x)


class Outer(nn.Module):
    def __init__(self, size, depth=2, eps=0.5):
        super().__init__()
        self.blocks = nn.Sequential(*[Inner(size * 2**i) for i in range(depth)])
        self.norm = nn.LayerNorm(size * 2**depth, eps=eps)

    def forward(self, x):
        return self.norm(self.blocks(x))
""",
    "a module of the library, extended": _BEGIN
    + """class Causal(nn.Conv1d):
    def __init__(self, width):
        super().__init__(width, width, kernel_size=3, padding=2)

    def forward(self, x):
        return torch.tanh(super().forward(x)[..., :-2])
""",
}
