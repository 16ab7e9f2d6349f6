"""Calls that are not by a plain name are followed; what cannot be followed never makes two programs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.errors import ConfigError
from kb_ray.retrieve.building import Build
from kb_ray.retrieve.choosing import Candidate, likeness
from kb_ray.retrieve.computed import contained, operations, telling, telling_entry
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.layout import Embedding
from kb_ray.retrieve.leaking import Asked, computes
from kb_ray.retrieve.parts import OPAQUE
from kb_ray.retrieve.program import TEXT_VERSION, core
from kb_ray.retrieve.search import Limits, Search
from kb_ray.traces.store import open_store
from tests.unit.retrieve.material import lexical_build, rows_of, write_pairs
from tests.unit.retrieve.unplain import FORMS, Form, model


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_program_in_an_unusual_form_is_the_plain_one_and_no_other_of_that_form(form: Form) -> None:
    for code in form:
        compile(code, "form", "exec")
        assert OPAQUE not in operations(code)
    assert operations(form.unplain) == operations(form.plain) != ""
    assert computes(operations(form.unplain), Asked.of(form.plain))
    assert computes(operations(form.plain), Asked.of(form.unplain))
    assert not computes(operations(form.other), Asked.of(form.unplain))
    assert not computes(operations(form.other), Asked.of(form.plain))


UNKNOWN = {
    "a method by a name that is no literal": ("self.name = 'relu'", "getattr(x, self.name)()"),
    "a function by a name that is no literal": ("pass", "getattr(F, input())(x)"),
    "a function of those of a library": ("pass", "F.__dict__['relu'](x)"),
    "an argument": ("self.a = nowhere()", "self.a(x)"),
    "a field that is never stored": ("pass", "self.a(x)"),
    "a choice of functions": ("self.a = {'relu': F.relu, 'tanh': F.tanh}", "self.a[self.b](x)"),
    "a function that is handed on": ("pass", "torch.func.vmap(lambda v: v.exp())(x)"),
    "a function that an operation takes": ("pass", "torch.while_loop(self.a, lambda v: v.exp(), x)"),
}


@pytest.mark.parametrize(("made", "returned"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_followed_is_like_nothing(made: str, returned: str) -> None:
    lines = operations(model(made, f"x = torch.relu(x)\n{returned}"))
    assert OPAQUE in lines.split()
    assert telling(lines) == []
    assert telling_entry(lines) == ""
    task = Asked(core(""), lines)
    assert not computes(lines, task)
    one, other = (Candidate(row, 1.0, core(f"w{row} = {row}"), (0.0,), 10, lines) for row in range(2))
    assert likeness(one, other) < 1.0


def test_a_part_that_was_followed_counts_beside_one_that_was_not() -> None:
    lines = "relu ?\nexp log tanh"
    assert telling(lines) == ["exp log tanh"]
    assert computes(lines, Asked(core(""), "exp log tanh"))
    assert not computes("relu ?", Asked(core(""), "relu ?"))


def test_runs_of_operations_with_what_was_not_followed_are_not_shared() -> None:
    steps = ["relu", "tanh", "sigmoid", "exp", "log", "abs", "sqrt", "neg"]
    whole = " ".join(steps)
    assert contained(whole, whole) == 1.0
    holed = " ".join([*steps[:4], OPAQUE, *steps[4:]])
    assert contained(holed, holed) == pytest.approx(4 / 7)


def test_calling_what_is_none_computes_nothing_and_what_another_branch_makes_counts() -> None:
    given = "self.a = None\nif x is not None:\n    self.a = nn.ReLU()\nelse:\n    self.a = None"
    assert operations(model(given, "self.a(torch.exp(x))")) == "exp relu"
    assert operations(model("self.a = None", "self.a(torch.exp(x))")) == "exp"


def test_words_of_a_partial_function_count_as_those_of_a_call() -> None:
    bounded = operations(model("self.a = partial(torch.clamp, min=0)", "self.a(x)"))
    assert bounded == operations(model("pass", "torch.relu(x)")) == "relu"
    assert operations(model("self.a = partial(torch.clamp, max=0)", "self.a(x)")) == "clamp"


def test_what_forward_reads_of_its_context_is_computed() -> None:
    kept = (
        "\n\nclass Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.y = x.exp()\n"
    )
    assert operations(model("pass", "Fn.apply(x)", f"{kept}        return ctx.y + 1\n")) == "exp add"
    assert operations(model("pass", "Fn.apply(x)", f"{kept}        return x + 1\n")) == "add"


ENDLESS = {
    "a dictionary that holds itself": "d = OrderedDict()\nd['a'] = nn.ReLU()\n" + "d['a'] = d\n" * 40 + "self.a = d",
    "lists within themselves": "l = [nn.ReLU()]\n" + "l = [l, l]\n" * 40 + "self.a = nn.Sequential(*l)",
    "partial of itself": "f = F.relu\n" + "f = partial(f, *[f, f])\n" * 40 + "self.a = f",
    "dictionaries of themselves": "d = {'a': nn.ReLU()}\n" + "d = OrderedDict(d, b=d)\n" * 40 + "self.a = d",
    "children of children": "self.a = nn.ReLU()\n" + "self.a = nn.Sequential(self.a, *self.children())\n" * 40,
}


@pytest.mark.parametrize("made", ENDLESS.values(), ids=ENDLESS)
def test_what_holds_itself_is_followed_for_a_while(made: str) -> None:
    assert len(operations(model(made, "self.a(x)")).split()) <= 10_000


def test_names_of_the_file_that_are_made_of_themselves_end() -> None:
    assert (
        operations(model("pass", "act(x.exp())", "\n\nact = partial(act)\nother = [other, act]\n")).split()[0] == "exp"
    )


def test_a_lookup_drops_the_plain_program_and_shows_the_other_of_the_form(tmp_path: Path) -> None:
    form, found = FORMS["apply"], list(pairs(2, 1))
    codes = (form.plain, form.other)
    rows = [pair._replace(pytorch_code=code) for pair, code in zip(found, codes, strict=True)]
    path = write_pairs(tmp_path / "pairs.jsonl", rows)
    lexical_build(open_store(str(tmp_path / "index")), rows_of(f"file:{path}")).run()
    search = Search(Index(str(tmp_path / "index")), lambda example: 100)
    shown, retrieved = search.examples(form.unplain, Limits(2, 3000, 0.9))
    assert [example.pytorch_code for example in shown] == [form.other]
    assert retrieved.leaks == 1


def test_an_index_whose_operations_were_called_otherwise_is_refused(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", list(pairs(2, 1)))
    older = Embedding(kind="lexical", text_version=TEXT_VERSION - 1)
    Build(open_store(str(tmp_path / "index")), rows_of(f"file:{path}"), older, {"corpus": "test"}).run()
    with pytest.raises(ConfigError, match=f"texts of version {TEXT_VERSION - 1}, .* build it again"):
        Search(Index(str(tmp_path / "index")), lambda example: 100)
