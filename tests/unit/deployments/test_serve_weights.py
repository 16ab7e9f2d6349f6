"""Folders of models that cannot be read are told before a start, by the name of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deployments import app
from kb_ray import serve
from kb_ray.errors import ConfigError
from kb_ray.serve_file import find, read
from kb_ray.serve_weights import INDEX, NotHere, faults
from tests.fixtures_head import free_port

pytestmark = pytest.mark.usefixtures("no_engine_asked")
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def tensors(path: Path, size: int = 8) -> None:
    """A file of safetensors with one tensor of `size` bytes."""
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "data_offsets": [0, size]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))


def whole(folder: Path) -> Path:
    """A model in two files, and one of a Mac's beside them that is none."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    tensors(folder / ONE)
    tensors(folder / TWO, 0)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"w": ONE, "v": TWO, "u": TWO}}))
    (folder / "._model.safetensors").write_bytes(b"Mac OS X")
    return folder


def in_one(folder: Path, name: str = "model.safetensors") -> Path:
    whole(folder)
    for file in (ONE, TWO, INDEX):
        (folder / file).unlink()
    tensors(folder / name)
    return folder


def test_a_whole_model_passes(tmp_path: Path) -> None:
    assert list(faults(whole(tmp_path / "two"))) == []
    assert list(faults(in_one(tmp_path / "one"))) == []
    assert list(faults(in_one(tmp_path / "gguf", "m.gguf"))) == []


def test_where_mistrals_layout_lies_there_it_alone_is_read(tmp_path: Path) -> None:
    folder = whole(tmp_path / "both")
    tensors(folder / "consolidated.safetensors")
    (folder / ONE).write_bytes(POINTER)
    assert list(faults(folder)) == []
    assert [ONE in fault for fault in faults(folder, consolidated=False)] == [True]
    (folder / TWO).unlink()
    (folder / "consolidated.safetensors").write_bytes(POINTER)
    assert [str(folder / "consolidated.safetensors") in fault for fault in faults(folder)] == [True]
    (folder / "consolidated.safetensors.index.json").write_text('{"weight_map": {"w": "consolidated-2.safetensors"}}')
    [missing] = faults(folder)
    assert "consolidated-2.safetensors is missing, and consolidated.safetensors.index.json names it" in missing


def _cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-3])


def _write(name: str, text: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(text)


@pytest.mark.parametrize(
    ("damage", "file", "said"),
    [
        (_cut(ONE), ONE, "is 93 bytes long, and its header says 96: copy or download it again"),
        (_write(ONE, b"\x05"), ONE, r"is cut off or damaged \(1 bytes, which end within its header\)"),
        (_write(ONE, b"\xff" * 90), ONE, "is cut off or damaged .*within its header"),
        (_write(ONE, b"\x02" + bytes(7) + b"[]"), ONE, "has a damaged header .*no JSON object"),
        (_write(ONE, b"\x07" + bytes(7) + b'{"w":1}'), ONE, "has a damaged header .*no place"),
        (_write(ONE, POINTER), ONE, "is a Git LFS pointer and not the file itself: run `git lfs pull`"),
        (lambda folder: (folder / TWO).unlink(), TWO, f"is missing, and {INDEX} names it"),
        (_write("config.json", b'{"a": '), "config.json", "is cut off or damaged"),
        (_write("config.json", POINTER), "config.json", "is a Git LFS pointer"),
        (_write("config.json", b"[" * 100_000), "config.json", "is cut off or damaged"),
        (_write("config.json", b'"\xff"'), "config.json", "is cut off or damaged"),
        (_write("tokenizer.json", b""), "tokenizer.json", "is cut off or damaged"),
        (_write(INDEX, b'{"weight_map"'), INDEX, "is cut off or damaged"),
        (_write(INDEX, b'{"weight_map": {}}'), INDEX, "is no index of weights"),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(
    tmp_path: Path, damage: Callable[[Path], object], file: str, said: str
) -> None:
    folder = whole(tmp_path / "model")
    damage(folder)
    (line,) = faults(folder)
    assert line.startswith(f"{folder / file} ")
    assert "\n" not in line
    assert re.search(said, line), line


def test_a_folder_without_weights_is_told_where_they_are_read(tmp_path: Path) -> None:
    folder = in_one(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (line,) = faults(folder)
    assert line.startswith(f"{folder} holds no weights")
    assert list(faults(folder, weights=False)) == []


@pytest.mark.parametrize("kind", ["m.gguf", "pytorch_model.bin"])
def test_of_other_weights_a_pointer_is_told_too(tmp_path: Path, kind: str) -> None:
    folder = in_one(tmp_path / "m", kind)
    (folder / kind).write_bytes(POINTER)
    (line,) = faults(folder)
    assert line.startswith(f"{folder / kind} is a Git LFS pointer")


def _file(tmp_path: Path, source: str, **engine: str) -> Path:
    """The smallest deployment, of another model."""
    config = read(find("smollm2_cpu"))
    model = config["applications"][0]["args"]["models"][0]
    model |= {"source": source, "source_env": None, "engine": {**model["engine"], **engine}}
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def test_damage_is_told_by_the_check_and_before_ray_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = in_one(tmp_path / "model")
    _cut("model.safetensors")(folder)
    file = str(_file(tmp_path, str(folder)))
    assert serve.main([file, "--check"]) == 2
    told = capsys.readouterr()
    said = f"error: model smollm2-135m-instruct: {folder / 'model.safetensors'} is 93 bytes long"
    assert (told.out, told.err.startswith(said)) == ("1 to mend\n", True)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setattr(serve, "_check_vllm", lambda config: None)
    monkeypatch.setattr("kb_ray.cluster.connect", lambda *_: pytest.fail("Ray was started"))
    assert serve.main([file, "--port", str(free_port())]) == 2
    assert capsys.readouterr().err.startswith(said)
    assert serve.main([str(_file(tmp_path, str(folder), load_format="dummy")), "--check"]) == 0


@pytest.mark.parametrize("source", ["org/model", "s3://bucket/model"])
def test_of_a_model_elsewhere_nothing_is_looked_at(tmp_path: Path, source: str) -> None:
    assert serve.main([str(_file(tmp_path, source)), "--check"]) == 0


def test_a_folder_that_is_not_here_is_a_note_of_the_check_and_refused_where_ray_is_to_start_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(_file(tmp_path, str(tmp_path / "nowhere")))
    assert serve.main([file, "--check"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"note: no model of smollm2-135m-instruct in {tmp_path / 'nowhere'}: make it with")
    assert told.endswith("nothing is wrong with it\n")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setattr(serve, "_check_vllm", lambda config: None)
    monkeypatch.setattr("kb_ray.cluster.connect", lambda *_: pytest.fail("Ray was started"))
    assert serve.main([file, "--port", str(free_port())]) == 2
    assert "error: no model of smollm2-135m-instruct in" in capsys.readouterr().err


def test_on_a_cluster_a_folder_that_is_here_must_be_whole_and_another_may_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of a build but vLLM's part.
    monkeypatch.setattr(app, "build", lambda args: app.serving_args(app.parse(args)))
    absent = read(_file(tmp_path, str(tmp_path / "nowhere")))
    for tried in (serve._check_weights, serve._try_builds):
        tried(absent, alone=False)
        with pytest.raises(NotHere):
            tried(absent, alone=True)
    _write("config.json", b"{")(in_one(tmp_path / "model"))
    with pytest.raises(ConfigError, match=r"config\.json is cut off or damaged"):
        serve._check_weights(read(_file(tmp_path, str(tmp_path / "model"))), alone=False)
