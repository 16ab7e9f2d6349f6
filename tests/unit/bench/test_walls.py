"""What stands between the judge and strangers, where no candidate is needed to see it."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from kb_ray.bench import sandbox
from kb_ray.bench.child import wire
from kb_ray.bench.child.allowance import usual
from kb_ray.bench.child.blame import blame_exception
from kb_ray.bench.child.checking import MAX_COUNT, as_counts
from kb_ray.bench.child.forking import Zygote
from kb_ray.bench.child.frames import Channel, FrameTimeout, Kind
from kb_ray.bench.child.message import pack
from kb_ray.errors import InfraError


@pytest.fixture
def pretended(tmp_path: Path) -> tuple[Channel, Zygote]:
    """Both ends of a zygote that the test plays."""
    (tmp_path / "groups").mkdir()
    ours, theirs = (Channel(end) for end in socket.socketpair())
    ours.send(Kind.READY, pack(pid=1))
    return ours, Zygote(
        theirs, cuda=False, folder=tmp_path, template=None, cgroups=None, bounds=usual("cpu", "candidates", 1)
    )


def test_own_code_is_not_visible_where_it_is_installed_among_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "lib" / "site-packages"
    for name in ("kb_ray/tasks", "deployments", "torch"):
        (packages / name).mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(packages)])
    seen = sandbox.visible(cuda=False)
    assert str(packages / "torch") in seen.readable
    hidden = [packages / "kb_ray", packages / "deployments"]
    assert [p for p in seen.readable for h in hidden if h.is_relative_to(os.path.realpath(p))] == []
    assert str(packages) in seen.listable


def test_own_repository_is_not_visible() -> None:
    repository = Path(sandbox.__file__).parents[2]
    assert [p for p in sandbox.visible(cuda=False).readable if repository.is_relative_to(p)] == []


def test_integer_keys_that_hash_alike_are_refused() -> None:
    key = (1 << 61) - 1
    small, large = (bytes([1, 10, 1, 3, 8]) + n.to_bytes(8, "little") + bytes([0]) for n in (key >> 1, key))
    assert wire.decode(small) == {key >> 1: None}
    with pytest.raises(wire.WireError, match="key"):
        wire.decode(large)


def test_reported_counts_fit_the_columns_they_end_in() -> None:
    assert as_counts({"a": 1 << 8000, "b": -1, "c": True, "d": "x", "\ud800": 2}) == {"a": MAX_COUNT, "?": 2}


def test_a_reported_line_is_a_line_of_the_source() -> None:
    for line in (0, -1, 3, 1 << 8000, "1", None):
        assert blame_exception({"type": "E", "message": "m", "line": line}, "call", "a\nb\n", False)[2].line is None
    assert blame_exception({"type": "E", "message": "m", "line": 2}, "call", "a\nb\n", False)[2].line == 2


def test_an_end_that_nobody_waits_for_any_more_does_not_stop_the_news(pretended: tuple[Channel, Zygote]) -> None:
    peer, zygote = pretended
    peer.send(Kind.EXITED, pack(id=99, status=0))
    with pytest.raises(InfraError, match=os.strerror(11)):
        refused(peer, zygote)


def refused(peer: Channel, zygote: Zygote) -> None:
    """Ask for a child and answer that the system has no process left."""

    def refuse() -> None:
        frame = peer.recv(timeout_s=10)
        for fd in frame.fds:
            os.close(fd)
        peer.send(Kind.FORKED, pack(id=1, pid=-11))

    answering = threading.Thread(target=refuse)
    answering.start()
    try:
        zygote.spawn()
    finally:
        answering.join()


def test_a_refused_fork_leaves_no_descriptors_and_no_folder(pretended: tuple[Channel, Zygote], tmp_path: Path) -> None:
    peer, zygote = pretended
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InfraError):
        refused(peer, zygote)
    assert len(os.listdir("/proc/self/fd")) == before
    assert [p.name for p in tmp_path.iterdir()] == ["groups"]


def test_sending_to_somebody_who_does_not_read_ends_in_time() -> None:
    channel, other = (Channel(end) for end in socket.socketpair())
    with pytest.raises(FrameTimeout):
        channel.send(Kind.PUT, bytes(8 << 20), timeout_s=0.2)
    other.close()
