"""A store that fails now and then, for tests of what a run makes of it. Knows no run."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kb_ray.traces import outages
from kb_ray.traces.lease import Lease
from kb_ray.traces.store import LocalStore, StoreRefused, StoreUnavailable


def fail_in_turn(monkeypatch: pytest.MonkeyPatch, *, concerns: Callable[[str], bool]) -> None:
    """Of the first three writes to a key one is lost, one refused, and of the third only the answer is lost. A lease is
    renewed in time only every other time it is asked for."""
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(outages, "_LONGEST_PAUSE_S", 0.001)
    told: dict[str, int] = {}

    def failing(real: Callable[..., object]) -> Callable[..., object]:
        def write(store: LocalStore, key: str, data: bytes) -> object:
            told[key] = told.get(key, -1) + 1
            turn = told[key] if concerns(key) else 3
            if turn == 0:
                raise StoreUnavailable("away")
            if turn == 1:
                raise StoreRefused("still starting")
            done = real(store, key, data)
            if turn == 2:
                raise StoreUnavailable("no answer")
            return done

        return write

    for name in ("replace", "put_if_absent"):
        monkeypatch.setattr(LocalStore, name, failing(getattr(LocalStore, name)))
    monkeypatch.setattr(Lease, "check", in_time_every_other_time(Lease.check))


def in_time_every_other_time(real: Callable[..., None] = lambda: None) -> Callable[..., None]:
    """What asks a lease, and finds it not renewed in time the first time, the third and so on."""
    asked = [0]

    def check(*arguments: object) -> None:
        asked[0] += 1
        if asked[0] % 2:
            raise StoreUnavailable("not renewed in time")
        real(*arguments)

    return check


def away_for(monkeypatch: pytest.MonkeyPatch, seconds: float, *, concerns: Callable[[str], bool]) -> None:
    """No key that this concerns can be replaced for so many seconds from the first try on."""
    real, began = LocalStore.replace, list[float]()

    def replace(store: LocalStore, key: str, data: bytes) -> None:
        if concerns(key):
            began.append(time.monotonic())
            if began[-1] - began[0] < seconds:
                raise StoreUnavailable("away")
        real(store, key, data)

    monkeypatch.setattr(LocalStore, "replace", replace)
