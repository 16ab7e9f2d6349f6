"""A store's kernels verified again: what changed is told, the old store stays, both outputs can go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kb_ray.bench.__main__ import main
from kb_ray.bench.protocol import VERIFIER_VERSION, BenchRequest, BenchSettings
from kb_ray.bench.recheck import Changes, recheck
from kb_ray.errors import ConfigError
from kb_ray.records import Episode, Stage, Status, Verdict
from kb_ray.traces.run import RunInfo
from kb_ray.traces.schema import table_bytes
from kb_ray.traces.store import LocalStore
from kb_ray.traces.views import episodes
from tests.fixtures_bench import ADD_RELU, KERNEL, Verify, changed
from tests.unit.traces.examples import make_episode

SETTINGS = BenchSettings(n_correctness=2, device="cpu", timeout_s=30)
WRONG = changed("x + y", "x - y")


def old_episode(sample: int) -> Episode:
    """Two turns: said to be a mismatch, which is right, and said to be ok, which it is for sample 0 only."""
    episode = make_episode(sample=sample)
    codes = (WRONG, WRONG if sample else KERNEL)
    turns = tuple(t.model_copy(update={"triton_code": c}) for t, c in zip(episode.turns, codes, strict=True))
    return episode.model_copy(update={"turns": turns, "task": ADD_RELU})


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path / "old"))
    info = RunInfo(
        run_id="run-1", fingerprint="f", identity={"model": "m"}, config={}, versions={}, created_at="2026-01-01"
    )
    store.put_if_absent("run.json", info.model_dump_json().encode())
    store.put_if_absent("parts/part-0.parquet", table_bytes([old_episode(0), old_episode(1)]))
    return store


@pytest.fixture
def evaluate(verify: Verify) -> Callable[[BenchRequest], Verdict]:
    return lambda request: verify(request.kernel_code, request.task, n_correctness=2)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("names", [("n-correctness", "torch-ops"), ("n_correctness", "torch_ops")])
def test_kernels_are_verified_as_their_run_did_it_but_for_what_is_named(
    names: tuple[str, str], store: LocalStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces of generation and of training name their settings differently."""
    told = store.get("run.json")
    assert told is not None
    identity = {"model": "m", names[0]: 7, names[1]: "forbid", "timeout": 12.5, "device": "cuda"}
    store.replace("run.json", json.dumps(json.loads(told) | {"identity": identity}).encode())
    asked = list[BenchRequest]()

    def evaluate(request: BenchRequest) -> Verdict:
        asked.append(request)
        return Verdict.of(Status.MISMATCH, Stage.FULL, verifier_version=VERIFIER_VERSION)

    monkeypatch.setattr("kb_ray.bench.__main__.evaluate_here", evaluate)
    assert main(["--recheck", store.uri, "--device", "cpu", "--tf32", "--timeout", "12.5"]) == 0
    wanted = BenchSettings(n_correctness=7, torch_ops="forbid", timeout_s=12.5, tf32=True, device="cpu")
    assert {request.settings for request in asked} == {wanted}
    assert "settings: those of the run, but tf32 not said -> True\n" in capsys.readouterr().out


def test_changes_are_told_and_written_and_the_old_store_stays(
    store: LocalStore, evaluate: Callable[[BenchRequest], Verdict], tmp_path: Path
) -> None:
    before, said = contents(Path(store.uri)), list[str]()
    changes = recheck(store.uri, SETTINGS, evaluate, 2, said.append, tmp_path / "out.jsonl", None)
    assert said == ["folder/add_relu sample 1 turn 1: ok -> mismatch"]
    assert changes.statuses == {
        (Status.MISMATCH, Status.MISMATCH): 2, (Status.OK, Status.OK): 1, (Status.OK, Status.MISMATCH): 1,
    }  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["sample"], row["turn"], row["verdict"]["status"]) for row in rows] == [
        (0, 0, "mismatch"), (0, 1, "ok"), (1, 0, "mismatch"), (1, 1, "mismatch"),
    ]  # fmt: skip
    assert contents(Path(store.uri)) == before


def verdicts(count: list[str]) -> Callable[[BenchRequest], Verdict]:
    """A verifier that says mismatch to all, and counts whom it was asked about."""

    def evaluate(request: BenchRequest) -> Verdict:
        count.append(request.request_id)
        return Verdict.of(Status.MISMATCH, Stage.FULL, verifier_version=VERIFIER_VERSION)

    return evaluate


def test_lines_that_are_there_are_not_verified_again_and_a_torn_one_is(store: LocalStore, tmp_path: Path) -> None:
    out, asked = tmp_path / "out.jsonl", list[str]()
    recheck(store.uri, SETTINGS, verdicts(asked), 1, print, out, None)
    whole = out.read_text()
    out.write_text(whole[:-20])
    recheck(store.uri, SETTINGS, verdicts(asked), 1, print, out, None)
    assert len(asked) == 5
    assert out.read_text() == whole
    recheck(store.uri, SETTINGS.model_copy(update={"n_correctness": 3}), verdicts(asked), 1, print, out, None)
    assert len(asked) == 9, "other settings, other verdicts"


def test_a_new_store_holds_the_episodes_with_new_verdicts_once(store: LocalStore, tmp_path: Path) -> None:
    new, asked = LocalStore(str(tmp_path / "new")), list[str]()
    for _ in range(2):
        recheck(store.uri, SETTINGS, verdicts(asked), 2, print, None, new.uri)
    assert len(asked) == 4
    old, again = list(episodes(store)), list(episodes(new))
    assert [[turn.verdict.status for turn in episode.turns] for episode in again] == [[Status.MISMATCH] * 2] * 2
    assert [episode.best_turn for episode in again] == [0, 0]
    assert [e.messages for e in again] == [e.messages for e in old]
    assert {e.episode_id for e in again}.isdisjoint(e.episode_id for e in old)


def test_what_our_side_failed_to_verify_is_counted_and_tried_next_time(store: LocalStore, tmp_path: Path) -> None:
    def failing(request: BenchRequest) -> Verdict:
        return Verdict.of(Status.INFRA_ERROR, Stage.STATIC)

    out, new, asked = tmp_path / "out.jsonl", str(tmp_path / "new"), list[str]()
    assert recheck(store.uri, SETTINGS, failing, 2, print, out, None).infra == 4
    recheck(store.uri, SETTINGS, failing, 2, print, None, new)
    recheck(store.uri, SETTINGS, verdicts(asked), 2, print, out, None)
    recheck(store.uri, SETTINGS, verdicts(asked), 2, print, None, new)
    assert len(asked) == 8


def test_a_store_is_not_its_own_output_and_a_foreign_file_no_list_of_rows(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name another one"):
        recheck(store.uri, SETTINGS, verdicts([]), 1, print, None, store.uri)
    (tmp_path / "notes").write_text("hello\n")
    with pytest.raises(ConfigError, match="other lines"):
        recheck(store.uri, SETTINGS, verdicts([]), 1, print, tmp_path / "notes", None)


def test_the_table_begins_with_what_is_most_frequent() -> None:
    changes = Changes()
    old = Verdict.of(Status.OK, Stage.FULL)
    for status in (Status.OK, Status.HACK, Status.HACK, Status.INFRA_ERROR):
        changes.add(old, Verdict.of(status, Stage.FULL))
    assert changes.table() == "ok -> hack  2\nok -> ok  1\nnot verified, our side failed  1"
