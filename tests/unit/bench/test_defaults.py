"""Programs that share a process: what one sets for all of PyTorch is its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kb_ray.bench.child.defaults import Defaults
from kb_ray.bench.child.frames import Kind
from kb_ray.bench.child.program import Server

PLAIN = "import torch\ndef reference_impl(x):\n    return x\ndef get_inputs():\n    return [torch.randn(4)]\n"
AT_LOAD = PLAIN + "torch.set_default_dtype(torch.float64)\n"
AT_DRAW = PLAIN.replace("    return [", "    torch.set_default_dtype(torch.float64)\n    return [")
WHERE = PLAIN.replace("[torch.randn(4)]", "[torch.tensor(torch.empty(1).is_meta, device='cpu')]")
ON_META = WHERE + "torch.set_default_device('meta')\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    channel: Any = None
    yield Server(channel, "none", False, str(tmp_path))
    Defaults().apply()


def load(server: Server, name: str, code: str) -> None:
    request = {"program": name, "role": "reference", "code": code, "style": "function", "input_shapes": None,
               "entry_point": "reference_impl"}  # fmt: skip
    server.answer(Kind.LOAD, request, ())


def drawn(server: Server, name: str) -> torch.Tensor:
    server.answer(Kind.DRAW, {"program": name, "seed": 1, "slot": "s"}, ())
    return server.slots["s"].tensors[0]


@pytest.mark.parametrize("code", [AT_LOAD, AT_DRAW])
def test_a_default_dtype_stays_with_the_program_that_set_it(server: Server, code: str) -> None:
    load(server, "plain", PLAIN)
    load(server, "own", code)
    assert drawn(server, "own").dtype is torch.float64
    load(server, "later", PLAIN)
    for name, dtype in (("plain", torch.float32), ("own", torch.float64), ("later", torch.float32)):
        assert drawn(server, name).dtype is dtype


def test_a_default_device_stays_with_the_program_that_set_it(server: Server) -> None:
    load(server, "plain", WHERE)
    load(server, "own", ON_META)
    assert [drawn(server, name).item() for name in ("own", "plain", "own")] == [True, False, True]


def test_what_a_program_sets_before_it_fails_is_gone(server: Server) -> None:
    with pytest.raises(ZeroDivisionError):
        load(server, "broken", AT_LOAD + "1 / 0\n")
    load(server, "plain", PLAIN)
    assert drawn(server, "plain").dtype is torch.float32
