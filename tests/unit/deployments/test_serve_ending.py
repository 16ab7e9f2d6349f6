"""How `kb_ray.serve` spends the time until it is stopped, and how it ends where Ray ended before."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import pytest

from kb_ray import serve, serve_family
from kb_ray.cluster import Cluster


def test_orphans_are_reaped_while_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Collection[int]] = []

    def reap(before: Collection[int]) -> list[int]:
        seen.append(before)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return [len(seen)]

    monkeypatch.setattr(serve, "deploy", lambda *_, **__: "http://here")
    monkeypatch.setattr(serve, "stop", lambda: None)
    monkeypatch.setattr(serve_family, "REAP_S", 0.0)
    monkeypatch.setattr(serve_family, "reap_orphans", reap)
    with pytest.raises(KeyboardInterrupt):
        serve._serve_until_stopped(
            {}, None, None, Cluster("a:1", joined=True, dashboard=None, gpus=0, cpus=2, gpu_type=None)
        )
    assert seen == [[], [1], [2]]
    assert capsys.readouterr().out == "serving at http://here  (Ctrl-C stops)\nstopping ...\n"


@pytest.mark.parametrize("left", [[], ["7 (VLLM::EngineCor)", "8 (python)"]])
def test_what_does_not_end_is_named_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], left: list[str]
) -> None:
    codes: list[Any] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(serve_family, "end_descendants", lambda: left)
    serve._end_at_once()
    assert codes == [143]
    said = "warning: these processes do not end: 7 (VLLM::EngineCor), 8 (python)\n" if left else ""
    assert capsys.readouterr() == ("", said)
