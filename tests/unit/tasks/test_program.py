"""Reference programs are read by their syntax, and never run."""

from __future__ import annotations

import ast
import contextlib
import inspect
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.errors import TaskError
from kb_ray.records import TensorSpec
from kb_ray.tasks.program import Program, read_program
from kb_ray.tasks.signature import Signature

INPUTS = "\ndef get_inputs():\n    return [torch.rand(4, 4)]\n\ndef get_init_inputs():\n    return {init}\n"
MODEL = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
FUNCTION = "def reference_impl(x, y):\n    return x + y\n"
SHAPES = 'input_shapes = {"x": {"shape": [2, 3], "dtype": "float16"}, "y": {"shape": [3], "dtype": "torch.int64"}}\n'


def module(body: str, init: str = "[]") -> str:
    return body + INPUTS.format(init=init)


def test_a_model_with_its_input_functions_is_a_module_program() -> None:
    assert read_program(module(MODEL)) == Program("module", "Model", "args", None)


def test_a_reference_impl_takes_its_inputs_from_the_literal_beside_it() -> None:
    specs = {"x": TensorSpec(shape=(2, 3), dtype="float16"), "y": TensorSpec(shape=(3,), dtype="int64")}
    assert read_program(SHAPES + FUNCTION) == Program("function", "reference_impl", "args", specs)


def test_a_reference_impl_may_make_its_inputs_itself() -> None:
    code = FUNCTION + "def get_inputs():\n    return [1, 2]\n"
    assert read_program(code).input_shapes is None


def test_shapes_given_beside_the_program_win_over_those_in_it() -> None:
    given_shapes = '{"x": {"shape": [7]}, "y": {"shape": [7]}, "other": null}'
    read = read_program(SHAPES + FUNCTION, shapes=given_shapes).input_shapes
    assert read == {"x": TensorSpec(shape=(7,)), "y": TensorSpec(shape=(7,))}


def test_an_entry_point_given_beside_the_program_wins_over_the_usual_names() -> None:
    code = module(MODEL + "class Other(Model):\n    pass\n")
    assert read_program(code, entry_point="Other").entry_point == "Other"


@pytest.mark.parametrize(
    ("init", "convention"),
    [
        ("[]", "args"),
        ("[4, 8]", "args"),
        ("[[], {}]", "args_kwargs"),
        ("[[3], {'eps': 1e-5}]", "args_kwargs"),
        ("[[3, 3], [4]]", "args"),
        ("[sizes, {}]", "args"),
    ],
)
def test_the_init_convention_is_seen_in_what_get_init_inputs_returns(init: str, convention: str) -> None:
    assert read_program(module(MODEL, init)).init_convention == convention


def test_a_flat_list_of_arguments_is_not_taken_for_a_pair_when_the_source_knows_better() -> None:
    assert read_program(module(MODEL, "pair()"), init_convention="args_kwargs").init_convention == "args_kwargs"


ATTENTION = """
import torch

class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
    def forward(self, x):
        return x

class Pair(torch.nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
    def forward(self, query, key):
        return query, key

class Wrapped(Pair):
    pass

class Settings:
    width = 4
"""


@pytest.mark.parametrize(
    ("inputs", "init", "name"),
    [
        ("[torch.rand(4), torch.rand(4)]", "[[], {'width': 4}]", "Wrapped"),
        ("[torch.rand(4), torch.rand(4)]", "[[4], {'heads': 1}]", "Wrapped"),
        ("[torch.rand(4)]", "[[], {'factor': 4}]", "Scale"),
        ("[torch.rand(4)]", "[0.5]", "Scale"),
        ("make()", "make()", "Wrapped"),
        ("[torch.rand(4)]", "[[], {'nobody': 4}]", "Wrapped"),
    ],
)
def test_without_a_model_the_entry_point_is_the_class_that_the_inputs_suit(inputs: str, init: str, name: str) -> None:
    code = f"{ATTENTION}\ndef get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {init}\n"
    assert read_program(code).entry_point == name


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "is empty"),
        ("def f(:\n", "no valid Python: line 1"),
        ("x = '\0'", "no valid Python"),
        ("(" * 500 + ")" * 500, "no valid Python"),
        ("x = 1\n", "neither reference_impl() nor a class"),
        ("class Model:\n    pass\n", "no get_inputs()"),
        (MODEL + "def get_inputs():\n    return []\n", "no get_init_inputs()"),
        (FUNCTION, "neither input_shapes nor get_inputs()"),
        ("input_shapes = make()\n" + FUNCTION, "no literal dict"),
        ("input_shapes = [1]\n" + FUNCTION, "must map names"),
        ("input_shapes = {}\n" + FUNCTION, "names no input"),
        ('input_shapes = {"x": [1], "y": [1]}\n' + FUNCTION, "input_shapes['x'] must be"),
        (SHAPES.replace("[2, 3]", "[2, -3]") + FUNCTION, "list of sizes"),
        (SHAPES.replace("[2, 3]", "[True]") + FUNCTION, "list of sizes"),
        (SHAPES.replace("float16", "float13") + FUNCTION, "unknown dtype 'float13'"),
        (SHAPES + "def reference_impl(x):\n    return x\n", "does not suit reference_impl()"),
        (SHAPES + "def reference_impl(x, y, z):\n    return x\n", "does not suit reference_impl()"),
    ],
)
def test_a_program_that_cannot_be_used_says_why(code: str, reason: str) -> None:
    with pytest.raises(TaskError) as caught:
        read_program(code)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_entry_point_is_named() -> None:
    with pytest.raises(TaskError, match="no class or function 'Gone'"):
        read_program(module(MODEL), entry_point="Gone")


def test_reading_a_program_does_not_run_it(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    read_program(f"open({str(marker)!r}, 'w').close()\n" + SHAPES + FUNCTION)
    assert not marker.exists()


@given(st.text() | st.text(alphabet="def (x):\n class=[]{},*'\\"))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    with contextlib.suppress(TaskError):
        assert read_program(text).entry_point


NAMES = st.sampled_from("abcde")
POSITIONAL = ["", "a", "a, b", "a, b=1", "a=1", "a, /, b", "a, b=1, /", "*rest", "a, *rest, b"]
KEYWORD = ["*, a", "*, a=1, b", "**rest", "a, b=1, *, c, d=2", "a, /, b=1, **rest", "a, *rest, b=1, **more"]
PARAMETERS = st.sampled_from(POSITIONAL + KEYWORD)


@given(PARAMETERS, st.integers(0, 4), st.sets(NAMES))
@settings(max_examples=300, deadline=None)
def test_a_call_fits_a_signature_exactly_when_python_would_accept_it(
    parameters: str, count: int, keywords: set[str]
) -> None:
    source = f"def f({parameters}): pass"
    namespace: dict[str, object] = {}
    exec(source, namespace)
    function = namespace["f"]
    assert callable(function)
    try:
        inspect.signature(function).bind(*range(count), **dict.fromkeys(keywords))
        accepted = True
    except TypeError:
        accepted = False
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    assert Signature.of(node).fits(count, keywords) == accepted
