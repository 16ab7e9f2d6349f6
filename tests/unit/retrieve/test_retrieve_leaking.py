"""The task is known in all its clothes, and other programs are not taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.synthetic_pairs import disguised, pairs
from kb_ray.retrieve.choosing import Candidate
from kb_ray.retrieve.computed import contained, operations
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.leaking import Asked, Bounds, is_task, task_of, without_leaks
from kb_ray.retrieve.parts import Steps
from kb_ray.retrieve.program import core
from kb_ray.retrieve.search import Limits, Search
from tests.unit.retrieve.disguises import DISGUISES, OTHERS, PLAIN
from tests.unit.retrieve.longer_programs import LONGER
from tests.unit.retrieve.material import lexical_index

BOUNDS = Bounds(overlap=0.9)


def shown(program: str, score: float = 1.0) -> Candidate:
    return Candidate(0, score, core(program), (0.0,), 10, operations(program))


@pytest.mark.parametrize("code", DISGUISES.values(), ids=DISGUISES)
def test_the_task_in_other_clothes_is_the_task(code: str) -> None:
    assert code != PLAIN
    compile(code.removeprefix("\ufeff"), "disguise", "exec")
    assert is_task(shown(code), Asked.of(PLAIN), BOUNDS)


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS)
def test_another_program_is_not_the_task(code: str) -> None:
    assert code != PLAIN
    compile(code, "other", "exec")
    assert not is_task(shown(code), Asked.of(PLAIN), BOUNDS)


@pytest.mark.parametrize("program", LONGER.values(), ids=LONGER)
def test_longer_programs_are_known_with_a_method_more_and_another_constant(program: str) -> None:
    method = program.replace(
        "    def forward(self,", "    def extra_repr(self):\n        return 'x'\n\n    def forward(self,", 1
    )
    changed = program.replace("0.5", "0.25").replace("kernel_size=3", "kernel_size=5")
    for other in (method, changed):
        assert other != program
        assert is_task(shown(other), Asked.of(program), BOUNDS)
    others = [code for code in LONGER.values() if code != program]
    assert not any(is_task(shown(code), Asked.of(program), BOUNDS) for code in others)


def test_constants_that_only_change_sizes_leave_it_the_same_task_and_are_not_lost_from_the_text() -> None:
    three = "import torch\nN = 3\nM = N * 2\n\n\ndef reference_impl(x):\n    return x * M\n"
    seven = three.replace("N = 3", "N = 7")
    assert core(three).digest != core(seven).digest
    assert "3" in core(three).text
    assert is_task(shown(seven), Asked.of(three), BOUNDS)


def test_all_of_100_programs_are_known_in_other_clothes_and_no_family_is_taken_for_another() -> None:
    found = list(pairs(200, 3))
    dressed = [disguised(pair.pytorch_code, seed) for seed, pair in enumerate(found[:100])]
    asked = [Asked.of(pair.pytorch_code) for pair in found]
    assert sum(is_task(shown(other), task, BOUNDS) for other, task in zip(dressed, asked, strict=False)) == 100
    others = [(pair, shown(pair.pytorch_code)) for pair in found]
    wrong = [
        (pair.family, other.family)
        for pair, task in zip(found, asked, strict=True)
        for other, candidate in others
        if pair.family != other.family and is_task(candidate, task, BOUNDS)
    ]
    assert wrong == []


def test_a_long_task_that_an_example_contains_is_the_task() -> None:
    steps = ["relu", "tanh", "sigmoid", "exp", "log", "abs", "sqrt", "neg", "sin", "cos"]
    code = "import torch\n\n\ndef reference_impl(x):\n" + "".join(f"    x = torch.{step}(x)\n" for step in steps)
    whole, longer = code + "    return x\n", code + "    x = torch.floor(x)\n    return x\n"
    assert contained(operations(whole), operations(longer)) == 1.0
    assert is_task(shown(longer), Asked.of(whole), BOUNDS)
    assert (
        contained(
            operations("import torch\n\n\ndef reference_impl(x):\n    return torch.relu(x)\n"), operations(longer)
        )
        == 0.0
    )


def test_nearness_of_embeddings_counts_where_scores_are_cosines() -> None:
    other, task = OTHERS["another reduction"], Asked.of(PLAIN)
    assert is_task(shown(other, 0.996), task, Bounds(0.9, 0.995))
    assert not is_task(shown(other, 0.994), task, Bounds(0.9, 0.995))
    assert not is_task(shown(other, 25.0), task, Bounds(0.9, None))


def test_the_task_under_other_names_or_nearly_the_task_is_taken_out() -> None:
    pool = [shown(DISGUISES["renamed"]), shown(OTHERS["another function"]), shown(DISGUISES["a function"])]
    found = without_leaks(pool, Asked.of(PLAIN), BOUNDS)
    assert (found.clean, found.leaked) == ([pool[1]], [pool[0], pool[2]])


def test_ids_that_mean_one_task_are_one() -> None:
    assert task_of("sakana/1/19_5") == task_of("kernelbench/1/19_ReLU") == task_of("kernelbench/1/19_ReLU#2")
    assert task_of("sakana/2/19_5") != task_of("sakana/1/19_5") != task_of("kernelbench/1/1_ReLU")
    assert task_of("kernelbook/7#2") == task_of("kernelbook/7") != task_of("kernelbook/72")
    assert task_of("sakana/1/19_5") != task_of("sakana/1/1_5")


@pytest.mark.parametrize(
    "code",
    ["", "def broken(:", "x = 1", "\0", "((((" * 500, "import torch\n\n\ndef reference_impl(x):\n    return x\n"],
)
def test_what_computes_nothing_or_does_not_parse_is_not_taken_for_everything_else_of_that_kind(code: str) -> None:
    assert operations(code) == ""
    assert not is_task(shown("import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n"), Asked.of(code), BOUNDS)


SAME = [
    ("x ** 2", "x * x"), ("torch.square(x)", "torch.mul(x, x)"), ("(x - y) ** 2", "(x - y) * (x - y)"),
    ("torch.rsqrt(x)", "1 / torch.sqrt(x)"), ("x.rsqrt()", "1.0 / x.sqrt()"), ("torch.rsqrt(x)", "x ** -0.5"),
    ("torch.rsqrt(x)", "torch.reciprocal(torch.sqrt(x))"), ("y * torch.rsqrt(x)", "y / torch.sqrt(x)"),
    ("torch.sqrt(x)", "torch.pow(x, 0.5)"), ("torch.mul(x, x.sigmoid())", "x * torch.sigmoid(x)"),
    *(("torch.relu(x)", other) for other in (
        "torch.clamp(x, min=0)", "torch.clamp(x, 0.0)", "x.clamp(0, None)", "x.clip(min=0)", "torch.clamp_min(x, 0)",
        "x.clamp_min_(0)", "torch.clamp(input=x, min=0)", "torch.maximum(x, torch.zeros_like(x))",
        "torch.max(torch.tensor(0.0), x)", "(lambda v: v.relu())(x)", "ACT(x)",
    )),
]  # fmt: skip
DIFFERENT = [
    ("x ** 2", "x * y"), ("x.chunk(2)[0] ** 2", "x.chunk(2)[0] * x.chunk(2)[1]"), ("torch.rsqrt(x)", "torch.sqrt(x)"),
    ("torch.relu(x)", "x.clamp(min=1)"), ("torch.relu(x)", "x.clamp(0, 1)"), ("torch.relu(x)", "x.clamp(max=0)"),
    ("torch.relu(x)", "torch.maximum(x, torch.ones_like(x))"), ("x * torch.sigmoid(x)", "y * torch.sigmoid(x)"),
]  # fmt: skip
RETURNS = "import torch\n\nACT = lambda v: torch.relu(v)\n\n\ndef reference_impl(x, y):\n    return %s\n"


@pytest.mark.parametrize(("one", "other"), SAME)
def test_other_spellings_of_an_operation_are_the_operation(one: str, other: str) -> None:
    assert operations(RETURNS % one) == operations(RETURNS % other) != ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_operations_that_only_look_alike_are_told_apart(one: str, other: str) -> None:
    assert operations(RETURNS % one) != operations(RETURNS % other)


HEAD = "import torch\n\n\n"
MODEL = (
    "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
    "        a, l = nn.Sequential(nn.ReLU()), [x]\n%s        return torch.relu(a(x)) + l[0]\n"
)
ENDLESS = {
    "calls itself": HEAD + "class Model(torch.nn.Module):\n    def forward(self, x):\n        while True:\n"
    "            x = self.forward(torch.relu(x)) + self.forward(x)\n",
    "calls without operations": HEAD + "def reference_impl(x):\n" + "    reference_impl(x)\n" * 20
    + "    return x.relu()\n",
    "is its own base": HEAD + "class A(B, A, A):\n    pass\n\n\nclass B(A, B, A):\n    pass\n\n\n"
    "class Model(A, B):\n    def forward(self, x):\n        return super().forward(x.relu()) + A(x)(x)\n",
    "a sequence of itself twice, 40 times": MODEL % ("        a = nn.Sequential(a, a)\n" * 40),
    "a list added to itself, 40 times": MODEL % ("        l.extend(l)\n" * 40),
    "a list unpacked twice, 40 times": MODEL % ("        l = nn.Sequential(*l, *l)\n" * 40),
    "a list of 16,000 taken by each of 30 operations": MODEL
    % ("        l.extend(l)\n" * 14 + "        x = torch.cat(l)\n" * 30),
    "functions that call the one before twice": HEAD + "def f0(x):\n    return torch.relu(x)\n"
    + "".join(f"def f{n}(x):\n    return f{n - 1}(f{n - 1}(x))\n" for n in range(1, 40)),
    "each of 40 functions calls two others": HEAD
    + "".join(f"def f{n}(x):\n    return f{(n + 1) % 40}(f{(n + 2) % 40}(x.relu()))\n" for n in range(40)),
    "classes with two bases that share theirs": HEAD + "class A0:\n    pass\nclass B0:\n    pass\n"
    + "".join(f"class {c}{n}(A{n - 1}, B{n - 1}):\n    pass\n" for n in range(1, 35) for c in "AB")
    + "class Model(A34, B34):\n    def forward(self, x):\n        return self.nowhere(x.relu())\n",
    "lambdas that call the one before twice": MODEL % ("        f = torch.relu\n"
    + "        g = f\n        f = lambda v: g(g(v))\n" * 15 + "        x = f(x)\n"),
    "makes itself": HEAD + "class Model(torch.nn.Module):\n    def __init__(self):\n" + "        self.a = Model()\n" * 9
    + "\n    def forward(self, x):\n        return self.a(torch.relu(x))\n",
}  # fmt: skip


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS)
def test_programs_that_would_never_end_are_followed_for_a_while(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted in steps, all programs of the file together."""
    taken, take = list[int](), Steps.take

    def counting(steps: Steps, count: int = 1) -> None:
        taken.append(count)
        take(steps, count)

    monkeypatch.setattr(Steps, "take", counting)
    compile(code, "endless", "exec")
    operations.cache_clear()
    found = operations(code)
    # The step that is refused may itself be as large as a list is.
    assert sum(taken) < 300_000
    assert len(found.split()) <= 10_000


def test_a_task_that_would_never_end_is_looked_up(tmp_path: Path) -> None:
    lexical_index(tmp_path)
    search = Search(Index(str(tmp_path / "index")), lambda example: 100)
    shown, _ = search.examples(ENDLESS["a sequence of itself twice, 40 times"], Limits(3, 3000, 0.9))
    assert len(shown) == 3
