"""What an output may hold before a build, what a build takes away, and what names a kept verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.bench.protocol import BenchSettings
from kb_ray.index import main
from kb_ray.retrieve import verifying
from kb_ray.retrieve.layout import INFO_KEY
from kb_ray.retrieve.verifying import Verifier
from kb_ray.traces.store import LocalStore
from tests.unit.exporting.stories import store_of, story, verdict
from tests.unit.retrieve.material import lexical_build, rows_of, write_pairs

FOUND = list(pairs(4, 4))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_trace_store_is_no_output_and_stays_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_of(tmp_path / "run", story("fast"))
    before = contents(tmp_path / "run")
    assert (
        main(["--corpus", f"traces:{tmp_path / 'run'}", "--embed-with", "lexical", "--output", str(tmp_path / "run")])
        == 2
    )
    told = capsys.readouterr().err
    assert "holds parts/part-" in told
    assert "which is no part of an index" in told
    assert told.count("\n") == 1
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["notes.txt", "parts/00000-trace.parquet", "parts/mine.npy", "ann/other.faiss"])
def test_a_foreign_file_refuses_an_output(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"file:{write_pairs(tmp_path / 'p.jsonl', FOUND)}"
    (tmp_path / "index" / name).parent.mkdir(parents=True)
    (tmp_path / "index" / name).write_text("mine")
    assert main(["--corpus", spec, "--embed-with", "lexical", "--output", str(tmp_path / "index")]) == 2
    assert name in capsys.readouterr().err
    assert contents(tmp_path / "index") == {name: b"mine"}


def test_a_build_takes_away_only_what_builds_make(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "index"))
    foreign = ("parts/00000-trace.parquet", "parts/mine.npy", "ann/other.faiss")
    left = f"parts/00007-{'0' * 16}.verdicts.parquet"
    for key in (*foreign, left):
        store.replace(key, b"x")
    lexical_build(store, rows_of(f"file:{write_pairs(tmp_path / 'p.jsonl', FOUND)}")).run()
    assert {*foreign} < {*store.list("")}
    assert left not in store.list("")


@pytest.fixture
def asked(tmp_path: Path) -> Callable[[BenchSettings], int]:
    """How often a build with these settings asks the verifier, where all that earlier ones were told is kept."""
    spec = f"file:{write_pairs(tmp_path / 'p.jsonl', FOUND)}"

    def build(settings: BenchSettings) -> int:
        store, count = LocalStore(str(tmp_path / "index")), list[str]()
        verify = Verifier(lambda request: count.append(request.request_id) or verdict("fast"), settings, 1)
        kept = contents(tmp_path / "index") if (tmp_path / "index").exists() else {}
        lexical_build(store, rows_of(spec), verify=verify).run()
        for key, data in kept.items():
            store.replace(key, data)
        store.delete(INFO_KEY)
        return len(count)

    return build


@pytest.mark.parametrize(
    "other", [BenchSettings(device="cpu", timeout_s=0.5), BenchSettings(device="cuda"), BenchSettings(n_correctness=1)]
)
def test_verdicts_of_other_settings_do_not_count(
    asked: Callable[[BenchSettings], int], other: BenchSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [asked(other), asked(BenchSettings()), asked(other), asked(BenchSettings())] == [4, 4, 0, 0]
    monkeypatch.setattr(verifying, "VERIFIER_VERSION", "another")
    assert asked(BenchSettings()) == 4
