"""A model or an adapter that is to learn is loaded whole or refused in one line: nothing of it is drawn at random."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file, save, save_file

from kb_ray.errors import ConfigError
from kb_ray.learn.network import tokenizer_of
from tests.unit.learn import tiny

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4cac19622fc3ada9c0fdeadb33f88f367b541f38b89102a3f1\n"
"""What lies in place of a file that Git LFS was to fetch."""
NORM = "model.layers.0.input_layernorm.weight"
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def adapter(model: Path) -> bytes:
    return tiny.learner(model).adapter()["adapter_model.safetensors"]


def dropped(weights: Weights) -> None:
    del weights[next(name for name in weights if ".layers.1." in name)]


def odd(weights: Weights) -> None:
    next(value for name, value in weights.items() if ".layers.1." in name).view(-1)[-1] = float("nan")


def infinite(weights: Weights) -> None:
    next(iter(weights.values())).view(-1)[0] = float("-inf")


def another(weights: Weights) -> None:
    name = next(name for name in weights if ".layers.0." in name)
    weights[name.replace(".layers.0.", ".layers.7.")] = weights[name].clone()


def resized(weights: Weights) -> None:
    weights[NORM] = torch.ones(7)


def rewritten(file: Path, change: Callable[[Weights], None]) -> None:
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), r"cannot be loaded: its weights: SafetensorError: "),
        (lambda file: file.write_bytes(POINTER), r"cannot be loaded: its weights: SafetensorError: "),
        (lambda file: rewritten(file, dropped), r"is not whole: its file of weights lacks model\.layers\.1\."),
        (lambda file: rewritten(file, another), r"holds, for no layer of this model, model\.layers\.7\."),
        (lambda file: rewritten(file, resized), rf"in another size than the configuration says {NORM}; copy"),
        (lambda file: rewritten(file, odd), r"its weights are NaN or infinite in .*layers\.1\."),
        (lambda file: (file.parent / "tokenizer.json").write_text("{}"), r"model .* cannot be loaded: its tokenizer: "),
        (lambda file: (file.parent / "config.json").write_text("{"), r"cannot be loaded: "),
    ],
    ids=["cut", "pointer", "lacking", "left over", "size", "nan", "tokenizer", "config"],
)
def test_a_base_model_that_is_not_whole_is_refused_in_one_line(
    model: Path, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    damage(copy / "model.safetensors")
    with pytest.raises(ConfigError, match=said) as caught:
        tiny.learner(copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dropped, r"adapter is not whole: its file of weights lacks .*layers\.1\..*lora_"),
        (another, r"holds, for no layer of this model, .*layers\.7\."),
        (odd, r"adapter is of no use: its weights are NaN or infinite in .*layers\.1\."),
        (infinite, r"NaN or infinite in "),
        (dict.clear, r"lacks .* and \d+ more; copy or save it again"),
    ],
)
def test_an_adapter_that_is_not_whole_is_refused_in_one_line(
    model: Path, adapter: bytes, change: Callable[[Weights], None], said: str
) -> None:
    weights = load(adapter)
    change(weights)
    refused(model, save(weights), said)


@pytest.mark.parametrize("length", [0, 7, 500, -1])
def test_an_adapter_that_is_cut_is_refused_in_one_line(model: Path, adapter: bytes, length: int) -> None:
    refused(model, adapter[:length], "the checkpoint's adapter cannot be loaded: its weights: SafetensorError: ")


def test_a_pointer_in_place_of_an_adapter_is_refused_in_one_line(model: Path) -> None:
    refused(model, POINTER, "the checkpoint's adapter cannot be loaded: its weights: SafetensorError: ")


def refused(model: Path, weights: bytes, said: str) -> None:
    learner = tiny.learner(model)
    for take in (learner.begin_with, lambda data: learner.restore(learner.state(), data)):
        with pytest.raises(ConfigError, match=said) as caught:
            take(weights)
        assert "\n" not in str(caught.value)


def test_one_that_is_whole_is_taken_as_it_is(model: Path, adapter: bytes) -> None:
    other = tiny.learner(model, seed=7)
    assert other.adapter()["adapter_model.safetensors"] != adapter
    other.begin_with(adapter)
    assert other.adapter()["adapter_model.safetensors"] == adapter


def test_a_tokenizer_alone_that_is_damaged_is_refused_in_one_line(model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"model .* cannot be loaded: its tokenizer: ") as caught:
        tokenizer_of(str(copy))
    assert "\n" not in str(caught.value)
