"""Memory of recordings: one at a time, kept up to a bound, and left in order by a recording that fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kb_ray.model import recording
from kb_ray.model.recording import Looks, Places, Recording, RecordingFailed

CUDA = torch.device("cuda", 0)


class Bytes:
    """Memory on no GPU."""

    def __init__(self, held: int) -> None:
        self._held, self.closed, self.id = held, False, (0, 1)

    def held(self) -> int:
        return self._held

    def close(self) -> None:
        self.closed = True


class Somewhere(recording.Place):
    """A place on no GPU, whose memory comes to `held` bytes."""

    def __init__(self, device: torch.device, held: int = 0) -> None:
        self.device, self.stream = device, None
        self._memory: Any = Bytes(held)


class Graph:
    """Records what is asked of it; `broken`: the driver has broken the recording off."""

    def __init__(self, *, broken: bool) -> None:
        self.broken, self.asked = broken, list[str]()

    def capture_end(self) -> None:
        self.asked.append("end")
        if self.broken:
            raise RuntimeError("operation failed due to a previous error during capture")

    def reset(self) -> None:
        self.asked.append("reset")


@pytest.mark.parametrize(
    ("work", "looks"),
    [
        (lambda x: x + x[torch.tensor([0, 1])].sum(), False),
        (lambda x: x * 2 if x.max() > 1 else x, True),
        (lambda x: x.nonzero(), True),
        (lambda x: torch.zeros(int(x[0])), True),
    ],
)
def test_a_step_that_decides_by_numbers_is_noticed(work: Any, looks: bool) -> None:
    with Looks() as seen:
        work(torch.tensor([1.0, 2.0]))
    assert seen.any == looks


def test_a_place_has_one_user_at_a_time_and_is_used_again() -> None:
    places = Places(Somewhere)
    first, second = places.take(CUDA), places.take(CUDA)
    assert first is not second
    places.give_back(first)
    assert places.take(torch.device("cuda", 1)) is not first
    assert places.take(CUDA) is first
    assert places.take(CUDA) is not first


@pytest.mark.parametrize(("held", "kept"), [(recording._KEPT, True), (recording._KEPT + 1, False)])
def test_memory_is_kept_up_to_a_bound(held: int, kept: bool) -> None:
    place = Somewhere(CUDA, held)
    memory = place._memory
    Places(Somewhere).give_back(place)
    assert (place._memory is memory, memory.closed) == (kept, not kept)


@pytest.mark.parametrize(("free", "emptied"), [(recording._LOW, 0), (recording._LOW - 1, 1)])
def test_cached_memory_is_given_back_only_where_little_is_free(
    free: int, emptied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = list[int]()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1 << 40))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: times.append(1))
    recording._make_room(CUDA)
    assert len(times) == emptied


@pytest.mark.parametrize(
    ("error", "raised"),
    [(torch.OutOfMemoryError("full\nof words"), RecordingFailed), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_recording_that_fails_leaves_its_place_to_the_next(
    error: BaseException, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(recording, "_make_room", lambda device: None)
    monkeypatch.setattr(recording, "_recorded", fail)
    places = Places(Somewhere)
    with pytest.raises(raised) as told:
        Recording(lambda: torch.zeros(1), CUDA, places)
    assert "\n" not in str(told.value)
    place: Any = places.take(CUDA)
    assert place._memory is None
    assert places.take(CUDA) is not place


@pytest.mark.parametrize("broken", [True, False])
def test_the_allocator_is_told_that_a_broken_recording_is_over(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Any]()
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        monkeypatch.setattr(torch._C, name, lambda *where, name=name: told.append((name, *where)), raising=False)
    monkeypatch.setattr(recording, "_broken", [])
    graph = Graph(broken=broken)
    recording._abandon(graph, CUDA, (0, 7))
    assert graph.asked == ["end", "reset"]
    wanted = [("_cuda_endAllocateToPool", 0, (0, 7)), ("_cuda_releasePool", 0, (0, 7))]
    assert told == (wanted if broken else [])
    assert recording._broken == ([graph] if broken else [])
