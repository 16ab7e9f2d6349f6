"""Names under `engine` that vLLM does not know are told by the check, beside every other mistake; vLLM stands in."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kb_ray import serve, serve_check, serve_engine
from kb_ray.errors import ConfigError
from kb_ray.serve_engine import Known
from kb_ray.serve_file import find, read

KNOWN = Known(
    arguments=frozenset(
        {"dtype", "tensor_parallel_size", "max_model_len", "model", "reasoning_parser", "reasoning_parser_plugin"}
    ),
    parsers={"reasoning_parser": frozenset({"glm45", "qwen3"}), "tool_call_parser": frozenset({"hermes"})},
)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_engine, "known", lambda: KNOWN)


@pytest.fixture
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *of: None if name == "vllm" else find_spec(name, *of))
    serve_engine.known.cache_clear()
    yield
    serve_engine.known.cache_clear()


def changed(engine: dict[str, Any], **fields: Any) -> dict[str, Any]:
    config = read(find("glm45_air"))
    config["applications"][0]["args"]["models"][0] |= {"engine": engine, **fields}
    return config


def written(tmp_path: Path, config: dict[str, Any]) -> str:
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(config))
    return str(file)


def test_a_misspelt_argument_is_told_beside_another_mistake(
    vllm: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = changed({"dtype": "bfloat16", "tensor_paralel_size": 4}, gpus=4)
    assert serve.main([written(tmp_path, config), "--check"]) == 2
    told = capsys.readouterr()
    first, second = told.err.splitlines()
    assert first == "error: deployment argument models.0.gpus: no such field; did you mean cpus?"
    assert second == (
        "error: deployment argument models.0.engine.tensor_paralel_size is no argument of this vLLM; "
        "did you mean tensor_parallel_size?"
    )
    assert told.out == "2 to mend\n"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            {"reasoning_parser": "glm45x"},
            ["models.0.engine.reasoning_parser: this vLLM has no 'glm45x'; did you mean glm45?"],
        ),
        ({"reasoning_parser": "glm45"}, []),
        ({"reasoning_parser": ""}, []),
        ({"reasoning_parser": "mine", "reasoning_parser_plugin": "mine.py"}, []),
        ({"model": "x"}, ["models.0.engine.model: Ray says it to vLLM, by the model's `source` and `model_id`"]),
        ({}, []),
    ],
)
def test_parsers_are_those_that_vllm_has_or_a_plugin_brings(
    vllm: None, engine: dict[str, Any], said: list[str]
) -> None:
    assert list(serve_engine.faults(engine, "models.0.engine")) == said


@pytest.mark.parametrize("models", [None, 3, [3], [{"engine": 3}], [{}]])
def test_what_is_no_model_is_told_elsewhere(vllm: None, models: Any) -> None:
    config = read(find("glm45_air"))
    config["applications"][0]["args"] = {"models": models}
    assert list(serve_check.engine_faults(config)) == []
    config["applications"] += [3, {"name": "x", "import_path": "nowhere:build"}]
    assert list(serve_check.engine_faults(config)) == []


def test_without_vllm_the_check_says_what_it_did_not_look_at(
    no_vllm: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = changed({"reasoning_parser": "glm45x"})
    assert serve.main([written(tmp_path, config), "--check"]) == 0
    note, last = capsys.readouterr().out.splitlines()
    assert note == "note: names under `engine` were not looked at: this Python has no vLLM to ask"
    assert last == "nothing is wrong with the rest"
    serve_check.check_engine(config)
    assert serve.main(["bench", "--check"]) == 0
    assert capsys.readouterr().out == "nothing is wrong with it\n", "it has no model"


def test_a_vllm_that_cannot_be_imported_is_none_to_ask(no_vllm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(serve_engine.NotAsked, match=r"vLLM cannot be imported here: .*vllm"):
        serve_engine.known()


def test_a_start_is_refused_before_anything_is_built(vllm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.serve.status", lambda: SimpleNamespace(proxies={}))
    for passed in ("_check_gpus", "check_port", "_settled"):
        monkeypatch.setattr(serve, passed, lambda config, *_: config)
    monkeypatch.setattr(serve, "_is_alone", lambda: True)
    monkeypatch.setattr(serve, "_try_builds", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(ConfigError, match="reasoning_parser: this vLLM has no 'glm45x'"):
        serve.deploy(changed({"reasoning_parser": "glm45x"}))
