"""Properties of looking at a store again and again: only damage is told as damage, and neither it nor an outage of the
store outlasts its cause."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kb_ray import status
from kb_ray.errors import StoreError
from kb_ray.traces.layout import list_parts
from kb_ray.traces.skim import Skimmer
from kb_ray.traces.store import LocalStore, Reader, Store, StoreRefused, StoreUnavailable, open_store
from tests import synthetic_traces

FAILURES: dict[str, Callable[[], Exception]] = {
    "S3 does not answer": lambda: StoreUnavailable("trace store s3://b/run: http://s3 does not answer"),
    "it is refused": lambda: StoreRefused("trace store s3://b/run: AccessDenied"),
}


class Failing(io.RawIOBase):
    """A part whose end comes, as from S3 with the first request, and whose rest fails while `failure` says so."""

    def __init__(self, data: bytes, failure: Callable[[], Exception | None]) -> None:
        self._inner, self._failure = io.BytesIO(data), failure
        # The magic number and the length of the table of contents before it.
        self._rest = len(data) - 8 - int.from_bytes(data[-8:-4], "little")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._inner.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._inner.seek(offset, whence)

    def read(self, size: int = -1, /) -> bytes:
        if self.tell() < self._rest and (failure := self._failure()):
            raise failure
        return self._inner.read(size)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """24 episodes in three parts."""
    made = open_store(str(tmp_path / "out"))
    synthetic_traces.write_parts(made, synthetic_traces.episodes(24), per_part=8)
    return made


class Outage:
    """Whether parts can be read, and how often they were."""

    def __init__(self, failure: Callable[[], Exception]) -> None:
        self._failure, self.lasts, self.opened = failure, True, list[str]()

    def __call__(self) -> Exception | None:
        return self._failure() if self.lasts else None

    def open(self, store: LocalStore, key: str) -> Reader:
        """In place of the store's own."""
        self.opened.append(key)
        return Failing((Path(store.uri) / key).read_bytes(), self)


@pytest.fixture(params=FAILURES)
def outage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Outage:
    made = Outage(FAILURES[request.param])
    monkeypatch.setattr(LocalStore, "open", lambda store, key: made.open(store, key))
    return made


def test_a_store_that_fails_is_not_a_damaged_part_and_is_back_when_it_is(store: Store, outage: Outage) -> None:
    skimmer = Skimmer(store)
    for _ in range(2):
        with pytest.raises(StoreError, match="trace store") as caught:
            skimmer.look()
        assert "\n" not in str(caught.value)
    outage.lasts = False
    found = skimmer.look()
    assert (len(found.files), len(found.latest()), found.damaged) == (3, 24, ())


def test_the_command_ends_as_with_a_store_that_does_not_answer(
    store: Store, outage: Outage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status.main([store.uri]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_watching_outlasts_an_outage(
    store: Store, outage: Outage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes after the first look, with a part that was not read yet, and comes back."""
    outage.lasts = False
    steps = iter(("goes", "stays away", "comes back", "ctrl-c"))

    def pause(seconds: float) -> None:
        step = next(steps)
        if step == "goes":
            fresh = [episode for episode in synthetic_traces.episodes(60) if episode.turns][-8:]
            synthetic_traces.write_parts(store, iter(fresh))
        if step == "ctrl-c":
            raise KeyboardInterrupt
        outage.lasts = step != "comes back"

    monkeypatch.setattr(status, "time", SimpleNamespace(sleep=pause))
    assert status.main([store.uri, "--watch", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("error: ") == printed.err.count("\n") == 2
    assert "damaged" not in printed.out
    assert [line for line in printed.out.splitlines() if line.startswith("episodes:")] == [
        "episodes:  24", "episodes:  32",
    ]  # fmt: skip
    whole = list_parts(store)
    assert [outage.opened.count(key) for key in whole] == [1, 1, 1, 3], "what was read is not read again"


def test_a_damaged_part_is_read_again_and_the_others_are_not(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = LocalStore.open
    monkeypatch.setattr(LocalStore, "open", lambda self, key: (opened.append(key), original(self, key))[1])
    first, second, third = list_parts(store)
    path = Path(store.uri) / second
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    skimmer = Skimmer(store)
    assert [file.key for file in skimmer.look().damaged] == [second]
    path.write_bytes(whole)
    found = skimmer.look()
    assert (list(found.files), found.damaged) == ([first, second, third], ())
    skimmer.look()
    assert sorted(opened) == sorted([first, second, second, third])
