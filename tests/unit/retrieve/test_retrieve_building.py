"""Building beside others and after damage: nobody's finished index is harmed, what is broken is made again."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.errors import ConfigError
from kb_ray.index import main
from kb_ray.retrieve import building
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.layout import INFO_KEY
from kb_ray.traces.store import LocalStore
from tests.unit.retrieve.material import DIMENSION, HashEmbedders, rows_of, vector_build, write_pairs

FOUND = list(pairs(100, 4))


@pytest.fixture
def spec(tmp_path: Path) -> str:
    return f"file:{write_pairs(tmp_path / 'pairs.jsonl', FOUND)}"


@pytest.fixture
def other(tmp_path: Path) -> str:
    return f"file:{write_pairs(tmp_path / 'other.jsonl', FOUND[:40])}"


@pytest.mark.parametrize("same_request", [True, False])
def test_a_build_that_comes_second_leaves_the_first_ones_index_whole(
    tmp_path: Path, spec: str, other: str, monkeypatch: pytest.MonkeyPatch, same_request: bool
) -> None:
    """The first one finishes while the second one makes its FAISS index: with the last file before the metadata."""
    store = LocalStore(str(tmp_path / "index"))
    first = vector_build(store, rows_of(spec), part_rows=30, ann="hnsw")
    second = vector_build(store, rows_of(spec if same_request else other), part_rows=30, ann="hnsw")
    if not same_request:
        second.request = {"corpus": "other"}
    made, done = building.built, list[Any]()

    def overtaken(vectors: Any, kind: Any) -> bytes:
        data = made(vectors, kind)
        if not done:
            done.append(None)
            done.append(first.run())
        return data

    monkeypatch.setattr(building, "built", overtaken)
    if same_request:
        assert second.run() == done[1]
    else:
        with pytest.raises(ConfigError, match="another build finished there meanwhile"):
            second.run()
    index = Index(store.uri)
    assert len(index) == 100
    assert {file.key for file in index.info.files} | {INFO_KEY} == set(store.list("")), "the second one left something"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def no_numbers(path: Path) -> None:
    out = io.BytesIO()
    np.save(out, np.full((20, DIMENSION), np.nan, np.float32))
    path.write_bytes(out.getvalue())


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [("*.parquet", cut), ("*.parquet", emptied), ("*.npy", cut), ("*.npy", emptied), ("*.npy", no_numbers)],
)
def test_parts_of_an_earlier_start_that_are_damaged_are_made_again_and_the_others_taken(
    tmp_path: Path, spec: str, pattern: str, damage: Callable[[Path], None]
) -> None:
    store = LocalStore(str(tmp_path / "index"))
    whole = vector_build(store, rows_of(spec), part_rows=20).run()
    (tmp_path / "index" / INFO_KEY).unlink()
    damage(sorted((tmp_path / "index" / "parts").glob(pattern))[2])
    embedders = HashEmbedders()
    assert vector_build(store, rows_of(spec), part_rows=20, embedders=embedders).run().identity == whole.identity
    assert embedders.embedded == 20
    assert len(Index(store.uri)) == 100


def test_vectors_that_are_no_numbers_are_refused_while_building(tmp_path: Path, spec: str) -> None:
    class Broken(HashEmbedders):
        def result(self, ticket: Any) -> Any:
            return np.where(np.arange(len(ticket))[:, None] == 3, np.nan, ticket)

    store = LocalStore(str(tmp_path / "index"))
    with pytest.raises(ConfigError, match="no 16 finite numbers") as caught:
        vector_build(store, rows_of(spec), embedders=Broken()).run()
    assert "\n" not in str(caught.value)
    assert store.get(INFO_KEY) is None


def edited(name: str) -> Callable[[dict[str, Any]], None]:
    def change(info: dict[str, Any]) -> None:
        part, embedding = info["parts"][0], info["embedding"]
        match name:
            case "an absolute key":
                part["examples"]["key"] = f"/elsewhere/{part['examples']['key']}"
            case "a key above":
                part["vectors"]["key"] = f"../index/{part['vectors']['key']}"
            case "another key":
                part["vectors"]["key"] = "notes.txt"
            case "no dimension":
                embedding["dimension"] = None
            case "another dimension":
                embedding["dimension"] = 8
            case "no probe":
                embedding["probe"] = None
            case "a short probe":
                embedding["probe"] = [1.0]
            case "another count":
                info["count"] = 99
            case "no parts":
                info |= {"parts": [], "count": 0}
            case "no vectors":
                part["vectors"] = None
            case "another kind":
                embedding["kind"] = "lexical"
            case "a part twice":
                info["parts"][1] = part
            case "vectors of another part":
                part["vectors"], info["parts"][1]["vectors"] = info["parts"][1]["vectors"], part["vectors"]
            case "parts in another order":
                info["parts"].reverse()
            case "FAISS of another language":
                info["ann"]["files"]["cuda"] = info["ann"]["files"].pop("triton")
            case "FAISS of another kind":
                info["ann"]["kind"] = "ivf"
            case "FAISS of another hash":
                info["ann"]["files"]["triton"]["sha256"] = "0" * 64
            case "no hash":
                part["examples"]["sha256"] = "x"
            case "a format in words":
                info["format"] = "2"
            case "FAISS of no language":
                info["ann"]["files"] = {}

    return change


EDITS = (
    "an absolute key", "a key above", "another key", "no dimension", "another dimension", "no probe", "a short probe",
    "another count", "no parts", "no vectors", "another kind", "a part twice", "vectors of another part",
    "parts in another order", "FAISS of another language", "FAISS of another kind", "FAISS of another hash", "no hash",
    "a format in words", "FAISS of no language",
)  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_metadata_that_somebody_edited_is_one_line(tmp_path: Path, spec: str, name: str) -> None:
    store = LocalStore(str(tmp_path / "index"))
    vector_build(store, rows_of(spec), part_rows=60, ann="hnsw").run()
    info = json.loads(store.get(INFO_KEY) or b"")
    edited(name)(info)
    store.replace(INFO_KEY, json.dumps(info).encode())
    with pytest.raises(ConfigError, match=r"index .*: index\.json (is damaged|names FAISS files of none)") as caught:
        Index(store.uri)
    assert "\n" not in str(caught.value)


def test_rows_of_parts_that_do_not_agree_with_the_metadata_are_one_line(tmp_path: Path, spec: str) -> None:
    store = LocalStore(str(tmp_path / "index"))
    vector_build(store, rows_of(spec), part_rows=60).run()
    info = json.loads(store.get(INFO_KEY) or b"")
    info["parts"][0]["rows"], info["parts"][1]["rows"] = 59, 41
    store.replace(INFO_KEY, json.dumps(info).encode())
    with pytest.raises(ConfigError, match="holds 60 rows, not 59"):
        Index(store.uri)


def test_errors_of_the_place_speak_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for uri in (str(tmp_path / "file"), "", "http://x/y", "s3://"):
        with pytest.raises(Exception, match=r"^index ") as caught:
            Index(uri)
        assert "trace store" not in str(caught.value)


def test_the_same_command_after_the_corpus_changed_is_refused_and_after_a_copy_is_not(
    tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--corpus", spec, "--embed-with", "lexical", "--output", str(tmp_path / "index")]
    assert main(arguments) == 0
    path = Path(spec.removeprefix("file:"))
    path.write_bytes(path.read_bytes())
    assert main(arguments) == 0
    assert "there already" in capsys.readouterr().out
    write_pairs(path, FOUND[:7])
    assert main(arguments) == 2
    assert "of what the corpus was before it changed" in capsys.readouterr().err


def test_progress_tells_the_rows_of_all_where_they_are_known(
    tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb_ray.index._SAY_EVERY_S", 0.0)
    arguments = ["--corpus", spec, "--embed-with", "lexical", "--part-rows", "40", "--output", str(tmp_path / "index")]
    assert main(arguments) == 0
    assert "100 of 100 rows read, 80 examples indexed" in capsys.readouterr().err


def test_a_row_with_two_kernels_counts_as_two_of_so_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb_ray.index._SAY_EVERY_S", 0.0)
    cuda = "__global__ void k(float* x) { x[0] = 1.0f; }\n"
    path = tmp_path / "both.jsonl"
    rows = ({"pytorch_code": p.pytorch_code, "triton_code": p.triton_code, "cuda_code": cuda} for p in FOUND[:6])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["--corpus", f"file:{path}", "--embed-with", "lexical", "--part-rows", "12"]
    assert main([*arguments, "--output", str(tmp_path / "index")]) == 0
    assert "12 of 12 rows read" in capsys.readouterr().err
    assert main([*arguments, "--triton-only", "--part-rows", "6", "--output", str(tmp_path / "triton")]) == 0
    assert "6 of 6 rows read" in capsys.readouterr().err


def test_a_finished_index_that_was_damaged_since_is_not_called_there(
    tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--corpus", spec, "--embed-with", "lexical", "--output", str(tmp_path / "index")]
    assert main(arguments) == 0
    part = next((tmp_path / "index" / "parts").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:500])
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert part.name in told
    assert "in another folder" in told


def test_a_file_in_place_of_an_index_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="that is a file, name the folder of an index"):
        Index(str(tmp_path / "file"))
