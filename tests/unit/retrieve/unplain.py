"""Ways to write a call other than by its plain name, each with the same program written plainly, and another one."""

from __future__ import annotations

from typing import NamedTuple

_HEAD = (
    "import collections\nimport functools\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    "from collections import OrderedDict\nfrom functools import partial\n"
    "from torch.utils.checkpoint import checkpoint\n"
)


class Form(NamedTuple):
    """One program in an unusual form, the same in the plain one, and another in the unusual one."""

    unplain: str
    plain: str
    other: str


def model(made: str, returned: str, before: str = "") -> str:
    """A program whose __init__ and forward have these statements, the last one of which is what is returned."""
    begin, _, last = returned.rpartition("\n")
    body = "\n".join(f"        {line}" for line in [*begin.splitlines(), f"return {last}"])
    fields = "\n".join(f"        {line}" for line in made.splitlines())
    return (
        f"{_HEAD}{before}\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{fields}\n"
        f"\n    def forward(self, x):\n{body}\n"
    )


def function(body: str, before: str = "ctx.save_for_backward(x)", taken: str = "ctx, x", more: str = "") -> str:
    """A torch.autograd.Function `Fn` whose forward does this, and keeps something for its way back."""
    return (
        f"\n\nclass Fn(torch.autograd.Function):\n    @staticmethod\n    def forward({taken}):\n        {before}\n"
        f"        return {body}\n\n{more}    @staticmethod\n    def backward(ctx, grad):\n        return grad * 2\n"
    )


_LINEAR, _CONV = "nn.Linear(4, 4)", "nn.Conv2d(4, 4, 3)"
_NET = "self.net = nn.Sequential(%s)"
_PLAIN = model(_NET % f"{_LINEAR}, nn.ReLU()", "self.net(x)")


def _modules(made: str, returned: str, before: str = "") -> Form:
    """ONE form of Linear and ReLU: `ONE` and `TWO` in what is made, or stood before it."""
    texts = [
        (made.replace("ONE", one).replace("TWO", two), before.replace("ONE", one).replace("TWO", two))
        for one, two in ((_LINEAR, "nn.ReLU()"), (_CONV, "nn.MaxPool2d(2)"))
    ]
    return Form(model(texts[0][0], returned, texts[0][1]), _PLAIN, model(texts[1][0], returned, texts[1][1]))


def _calls(form: str, made: str = "pass", returned: str = "%s") -> Form:
    """A form of leaky_relu and softmax, where `N` stands in `form`, `made` or `returned`."""
    unplain, other = (
        model(made.replace("N", name), (returned % form if "%s" in returned else returned).replace("N", name))
        for name in ("leaky_relu", "softmax")
    )
    return Form(unplain, model("pass", "F.leaky_relu(x, 0.1)"), other)


def _applied(made: str, returned: str, before: str = "ctx.save_for_backward(x)", taken: str = "ctx, x", more: str = "",
             after: str = "") -> Form:  # fmt: skip
    """A form of Mish and of a running sum."""
    unplain, other = (
        model(made, returned, function(body, before, taken, more) + after)
        for body in ("x * torch.tanh(F.softplus(x))", "torch.cumsum(x, 1)")
    )
    return Form(unplain, model("pass", "x * torch.tanh(F.softplus(x))"), other)


_TWO_FIELDS = "self.one = ONE\nself.two = TWO"
_PAIRS = "OrderedDict([('one', ONE), ('two', TWO)])"
_FOR = "for m in %s:\n    x = m(x)\nx"
_SETUP = "    @staticmethod\n    def setup_context(ctx, inputs, output):\n        ctx.save_for_backward(*inputs)\n\n"
_METHOD = "self.h = Helper()\nself.a = self.h.b"
_HELPER = (
    "\n\nclass Helper(nn.Module):\n    def b(self, x):\n        return self.c(x)\n\n"
    "    @staticmethod\n    def c(x):\n        return F.%s(x)\n"
)
FORMS = {
    "ordered pairs": _modules(_NET % _PAIRS, "self.net(x)"),
    "ordered pairs by the module": _modules(_NET % f"collections.{_PAIRS}", "self.net(x)"),
    "an ordered dictionary": _modules(_NET % "OrderedDict({'one': ONE, 'two': TWO})", "self.net(x)"),
    "ordered words": _modules(_NET % "OrderedDict(one=ONE, two=TWO)", "self.net(x)"),
    "an ordered dictionary that grows": _modules(
        f"d = OrderedDict()\nd['one'] = ONE\nd['two'] = TWO\n{_NET % 'd'}", "self.net(x)"
    ),
    "an ordered dictionary of pairs in a loop": _modules(
        f"{_NET % 'OrderedDict([(str(i), m) for i, m in enumerate([ONE, TWO])])'}", "self.net(x)"
    ),
    "children": _modules(_TWO_FIELDS, _FOR % "self.children()"),
    "named children": _modules(_TWO_FIELDS, _FOR.replace(" m ", " _, m ") % "self.named_children()"),
    "children's values": _modules(_TWO_FIELDS, _FOR % "self._modules.values()"),
    "children of a sequence": _modules(_NET % "ONE, TWO", _FOR % "self.net.children()"),
    "modules of a list": _modules("self.net = nn.ModuleList([ONE, TWO])", _FOR % "self.net.children()"),
    "children in a sequence": _modules(
        f"{_TWO_FIELDS}\nnet = nn.Sequential(*list(self.children()))\nself.net = [net]", "self.net[0](x)"
    ),
    "added modules": _modules("self.add_module('one', ONE)\nself.add_module('two', TWO)", "self.two(self.one(x))"),
    "set attributes": _modules(
        "setattr(self, 'one', ONE)\nsetattr(self, 'two', TWO)", "self.two(getattr(self, 'one')(x))"
    ),
    "a dictionary of modules": _modules("self.d = nn.ModuleDict({'b': TWO, 'a': ONE})", "self.d['b'](self.d['a'](x))"),
    "a sequence of its own": _modules(
        "self.net = Net()", "self.net(x)",
        "\n\nclass Net(nn.Sequential):\n    def __init__(self):\n        super().__init__(ONE, TWO)\n",
    ),
    "made by its base": _modules(
        "self.net = Net()", "self.net(x)",
        "\n\nclass Base(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.one = ONE\n"
        "        self.two = TWO\n\n\nclass Net(Base):\n    def __init__(self):\n        super().__init__()\n\n"
        "    def forward(self, x):\n        return self.two(self.one(x))\n",
    ),
    "checkpoints": _modules(_TWO_FIELDS, "checkpoint(self.two, checkpoint(self.one, x))"),
    "called by forward": _modules(_TWO_FIELDS, "self.two.forward(self.one.forward(x))"),
    "partial": _calls("partial(F.N, dim=1)(x)"),
    "partial of functools in a field": _calls("", "self.a = functools.partial(F.N, inplace=True)", "self.a(x)"),
    "partial of partial": _calls("partial(partial(F.N), x)()"),
    "getattr": _calls("getattr(F, 'N')(x)"),
    "getattr with a default": _calls("getattr(F, 'N', None)(x)"),
    "getattr in a field": _calls("", "self.a = getattr(F, 'N')", "self.a(x)"),
    "getattr of getattr": _calls("getattr(getattr(torch.nn, 'functional'), 'N')(x)"),
    "getattr of a tensor": _calls("getattr(x, 'N')()"),
    "a field that is a method": Form(
        model(_METHOD, "self.a(x)", _HELPER % "leaky_relu"), model("pass", "F.leaky_relu(x)"),
        model(_METHOD, "self.a(x)", _HELPER % "softmax"),
    ),
    "a method of the class": Form(
        model("pass", "Helper.c(x)", _HELPER % "leaky_relu"), model("pass", "F.leaky_relu(x)"),
        model("pass", "Helper.c(x)", _HELPER % "softmax"),
    ),
    "a choice by name": _calls("{'a': F.N, 'b': torch.exp}['a'](x)"),
    "apply": _applied("pass", "Fn.apply(x)"),
    "apply in a field": _applied("self.a = Fn.apply", "self.a(x)"),
    "apply under a name": _applied("pass", "act(x)", after="\n\nact = Fn.apply\n"),
    "apply, keeping more": _applied("pass", "Fn.apply(x)", "ctx.mask = x > 0"),
    "apply, keeping what is computed": _applied("pass", "Fn.apply(x)", "ctx.save_for_backward(x.exp())"),
    "apply with a context set up": _applied("pass", "Fn.apply(x)", "pass", "x", _SETUP),
}  # fmt: skip
