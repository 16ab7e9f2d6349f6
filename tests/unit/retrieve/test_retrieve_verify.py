"""An index of kernels that our verifier judged: what is kept, what is asked about again, whose speedups they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.bench.protocol import BenchRequest, BenchSettings
from kb_ray.errors import InfraError
from kb_ray.records import Verdict
from kb_ray.retrieve.building import Build
from kb_ray.retrieve.example import Example
from kb_ray.retrieve.index import Index
from kb_ray.retrieve.layout import INFO_KEY
from kb_ray.retrieve.verifying import Verifier
from kb_ray.traces.store import LocalStore
from tests.unit.exporting.stories import verdict
from tests.unit.retrieve.material import lexical_build, rows_of, write_pairs

FOUND = list(pairs(6, 4))


class Judge:
    """Gives these verdicts in turn, and counts how often it was asked."""

    def __init__(self, *words: str) -> None:
        self._words = iter(words)
        self.asked = 0

    def __call__(self, request: BenchRequest) -> Verdict:
        self.asked += 1
        return verdict(next(self._words))


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Build]:
    """A build over FOUND in parts of three, judged as told."""
    spec = f"file:{write_pairs(tmp_path / 'p.jsonl', FOUND)}"
    store = LocalStore(str(tmp_path / "index"))

    def made(judge: Judge, request: str = "test") -> Build:
        verify = Verifier(judge, BenchSettings(device="cpu"), concurrency=1)
        found = lexical_build(store, rows_of(spec), part_rows=3, verify=verify)
        found.request = {"corpus": request, "verify": True}
        return found

    return made


def statuses(folder: Path) -> list[str]:
    files = sorted((folder / "parts").glob("*.verdicts.parquet"))
    return [status for file in files for status in pq.read_table(file)["status"].to_pylist()]


def test_kernels_that_our_side_failed_on_are_told_apart_and_asked_about_again(
    build: Callable[..., Build], tmp_path: Path
) -> None:
    with pytest.raises(InfraError, match=r"1 kernels could not be verified.*start again"):
        build(Judge("fast", "ours", "wrong", "slow", "fast", "wrong")).run()
    assert not (tmp_path / "index" / INFO_KEY).exists()
    judge = Judge("twice")
    info = build(judge).run()
    assert judge.asked == 1, "only what had no verdict"
    assert (info.count, info.corpora[0].dropped) == (4, {"not called correct by our verifier": 2})
    assert Index(str(tmp_path / "index")).example(1).speedup == 2.0
    assert statuses(tmp_path / "index") == ["ok", "ok", "mismatch", "ok", "ok", "mismatch"]


def test_a_kernel_that_our_side_fails_on_twice_is_left_out_and_says_so(build: Callable[..., Build]) -> None:
    words = ("fast", "ours", "wrong", "slow", "fast", "wrong")
    with pytest.raises(InfraError):
        build(Judge(*words)).run()
    info = build(Judge("ours")).run()
    assert info.corpora[0].dropped == {
        "not called correct by our verifier": 2, "not judged by our verifier, twice for reasons of its own": 1,
    }  # fmt: skip
    assert info.corpora[0].kept == info.count == 3


def test_a_killed_build_keeps_the_verdicts_and_their_reasons(build: Callable[..., Build], tmp_path: Path) -> None:
    first = build(Judge("fast", "wrong", "wrong", "slow", "fast", "wrong")).run()
    (tmp_path / "index" / INFO_KEY).unlink()
    judge = Judge()
    assert build(judge).run().corpora == first.corpora
    assert judge.asked == 0


def test_where_no_kernel_can_be_verified_nothing_is_built(build: Callable[..., Build], tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="no kernel of 3 could be verified"):
        build(Judge(*["ours"] * 6)).run()
    assert not (tmp_path / "index" / INFO_KEY).exists()


def test_verdicts_of_another_request_do_not_stay_and_those_of_refused_parts_do(
    build: Callable[..., Build], tmp_path: Path
) -> None:
    with pytest.raises(InfraError):
        build(Judge("fast", "ours", "wrong", "wrong", "wrong", "wrong")).run()
    other = build(Judge("fast", "fast", "wrong", "wrong", "wrong", "wrong"), request="other")
    other.part_rows = 2
    assert other.run().count == 2
    assert statuses(tmp_path / "index") == ["ok", "ok", "mismatch", "mismatch", "mismatch", "mismatch"]


def examples() -> Iterator[Example]:
    for number, (language, speedup) in enumerate([("triton", 77.0), ("cuda", 5.0)]):
        yield Example(
            example_id=f"x/{number}", corpus="x", language="triton" if language == "triton" else "cuda", digest="d",
            text="t", speedup=speedup, pytorch_code=FOUND[number].pytorch_code, kernel_code=FOUND[number].triton_code,
        )  # fmt: skip


@pytest.mark.parametrize(("word", "speedup", "trusted"), [("cpu", None, False), ("fast", 3.0, True)])
def test_speedups_of_judged_kernels_are_ours_or_none(word: str, speedup: float | None, trusted: bool) -> None:
    judged, unasked = Verifier(Judge(word), BenchSettings(device="cpu"), 1)(list(examples()), {})
    assert (judged.example.speedup, judged.example.trusted, judged.outcome.correct) == (speedup, trusted, True)
    assert (unasked.outcome.correct, unasked.outcome.error) == (False, "only Triton kernels can be verified")


def test_kernels_that_could_not_be_asked_about_are_counted_as_such(tmp_path: Path) -> None:
    store, verify = (
        LocalStore(str(tmp_path / "index")),
        Verifier(Judge("wrong", "fast"), BenchSettings(device="cpu"), 1),
    )
    first, cuda = examples()
    found = [first, cuda, first.model_copy(update={"example_id": "x/2", "kernel_code": "other"})]
    reasons = {"not called correct by our verifier": 1, "such as our verifier cannot be asked about": 1}
    assert lexical_build(store, {"x": iter(found)}, verify=verify).run().corpora[0].dropped == reasons
    store.delete(INFO_KEY)
    assert lexical_build(store, {"x": iter(found)}, verify=verify).run().corpora[0].dropped == reasons
