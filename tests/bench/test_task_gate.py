"""The verifier says what speaks against a task: references run in its sandbox, and blind answers are tried on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kb_ray.bench.host import Evaluator
from kb_ray.bench.inspect import inspection
from kb_ray.bench.protocol import BenchSettings
from kb_ray.records import Status, Task, Verdict
from kb_ray.tasks.__main__ import main
from kb_ray.tasks.program import read_program
from tests.fixtures_bench import ADD_RELU, Verify, changed

Look = Callable[..., Verdict]

CLAMPED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv, self.drop = nn.Conv2d(3, channels, 3), nn.Dropout(0.2)
    def forward(self, x):
        return self.drop(torch.clamp(torch.minimum(self.conv(x), torch.tensor(0.0)), 0.0, 1.0))
def get_inputs():
    return [torch.rand(2, 3, 10, 10)]
def get_init_inputs():
    return [4]
"""
NORM = CLAMPED.replace(
    "self.drop(torch.clamp(torch.minimum(self.conv(x), torch.tensor(0.0)), 0.0, 1.0))", "self.norm(x)"
)
NORM = NORM.replace("self.conv, self.drop = nn.Conv2d(3, channels, 3), nn.Dropout(0.2)", "self.norm = nn.LayerNorm(10)")
RANDOM = CLAMPED.replace("torch.clamp(torch.minimum(self.conv(x), torch.tensor(0.0)), 0.0, 1.0)", "self.conv(x)")
SOFTMAX = """
import torch
def get_inputs():
    return [torch.rand(2, 60000)]
def reference_impl(x):
    return x.softmax(1)
"""
LSTM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, 6, batch_first=True)
    def forward(self, x):
        return self.lstm(x)[0]
def get_inputs():
    return [torch.rand(2, 512, 4)]
def get_init_inputs():
    return []
"""
UNUSED = (
    "import torch\ninput_shapes = {'x': {'shape': [64, 8]}, 'y': {'shape': [64, 8]}}\n"
    "def reference_impl(x, y):\n    return torch.relu(x)\n"
)
GATED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch, self.gain = nn.Linear(16, 16), nn.Parameter(torch.zeros(()))
    def forward(self, x):
        return torch.relu(x) + self.gain * self.branch(x)
def get_inputs():
    return [torch.randn(4, 16)]
def get_init_inputs():
    return []
"""


def task(code: str) -> Task:
    program = read_program(code)
    fields = {name: getattr(program, name) for name in ("style", "entry_point", "init_convention", "input_shapes")}
    return Task(task_id="folder/t", source="folder", name="t", reference_code=code, **fields)


@pytest.fixture(scope="module")
def look(evaluator: Evaluator) -> Look:
    def look(asked: Task | str, max_bytes: int | None = None, timeout_s: float = 30.0) -> Verdict:
        asked = task(asked) if isinstance(asked, str) else asked
        name = f"look-{hash((asked.reference_code, max_bytes))}"
        return evaluator.evaluate(inspection(name, asked, BenchSettings(timeout_s=timeout_s), max_bytes))

    return look


@pytest.mark.parametrize(
    ("code", "flags"),
    [
        (CLAMPED, {"zeros_pass"}),
        (RANDOM, {"reference_not_deterministic"}),
        (SOFTMAX, {"zeros_pass_kernelbench"}),
        (UNUSED, {"ignores_input"}),
        (GATED, {"ignores_weights"}),
        (NORM, set()),
    ],
)
def test_what_speaks_against_a_task_is_found(look: Look, code: str, flags: set[str]) -> None:
    verdict = look(code)
    assert verdict.status is Status.OK
    assert set(verdict.evidence.flags) == flags


def test_a_good_task_has_no_flag_and_its_size_is_told(look: Look) -> None:
    verdict = look(ADD_RELU)
    assert (verdict.status, verdict.evidence.flags) == (Status.OK, ())
    assert verdict.evidence.input_bytes == 2 * 100 * 33 * 4


def test_a_giant_is_not_run_and_its_size_is_told(look: Look) -> None:
    giant = SOFTMAX.replace("2, 60000", "100000, 6000000")
    verdict = look(giant, max_bytes=1 << 30)
    assert (verdict.status, verdict.evidence.flags) == (Status.OK, ("too_large",))
    assert verdict.evidence.input_bytes == 4 * 10**5 * 6 * 10**6


def test_a_task_whose_size_depends_on_values_is_not_run_and_its_size_is_told_as_unknown(look: Look) -> None:
    verdict = look(SOFTMAX.replace("torch.rand(2,", "torch.rand(int(torch.ones(2).sum()),"), max_bytes=1 << 30)
    assert (verdict.status, verdict.evidence.flags) == (Status.OK, ("size_unknown",))
    assert verdict.evidence.input_bytes is None


def test_a_program_that_does_not_end_while_it_is_read_fails_whether_its_size_is_asked_for_or_not(look: Look) -> None:
    for more in ({"max_bytes": 1 << 30}, {}):
        verdict = look(SOFTMAX + "\n\nwhile True:\n    pass\n", timeout_s=3.0, **more)
        assert verdict.status is Status.INFRA_ERROR
        assert verdict.error is not None
        assert "did not finish in time" in verdict.error.message


def test_the_size_of_a_long_recurrent_network_is_told_and_it_is_run(look: Look) -> None:
    """By steps it would take a minute on the meta device, which is broken off, and the size be unknown."""
    verdict = look(LSTM, max_bytes=1 << 30)
    assert verdict.status is Status.OK
    # Its outputs are so small that KernelBench's tolerance takes another seed's for them now and then.
    assert set(verdict.evidence.flags) <= {"other_output_passes_kernelbench"}


def test_a_task_below_the_limit_is_run(look: Look) -> None:
    assert look(ADD_RELU, max_bytes=1 << 20).evidence.flags == ()


def test_a_reference_that_fails_says_why(look: Look) -> None:
    verdict = look(SOFTMAX.replace("x.softmax(1)", "x.softmax(7)"))
    assert verdict.status is Status.INFRA_ERROR
    assert "reference_failed" in verdict.evidence.flags
    assert verdict.error is not None
    assert "IndexError" in verdict.error.message


def test_a_flag_of_the_task_is_in_the_verdicts_of_its_candidates(verify: Verify) -> None:
    verdict = verify(changed("tl.maximum(x + y, 0.0)", "tl.maximum(x, 0.0)"), task(UNUSED))
    assert verdict.status is Status.OK
    assert "ignores_input" in verdict.evidence.flags
    assert not verdict.trusted


def test_the_command_runs_references_in_the_sandbox_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker, tasks = tmp_path / "escaped", tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "a_good.py").write_text(UNUSED.replace("return torch.relu(x)", "return torch.relu(x + y)"))
    (tasks / "b_writes.py").write_text(f"open({str(marker)!r}, 'w').close()\n{SOFTMAX}")
    (tasks / "c_broken.py").write_text("def f(:\n")
    (tasks / "c_needs.py").write_text(f"from nowhere_installed.models import Thing\n{SOFTMAX}")
    (tasks / "d_giant.py").write_text(SOFTMAX.replace("2, 60000", "9000, 90000"))
    report = tmp_path / "report.json"
    assert main(["check", f"folder:{tasks}", "--device", "cpu", "--max-bytes", "100M", "--json", str(report)]) == 1
    assert not marker.exists()
    read = {item["task_id"]: item for item in json.loads(report.read_text())["tasks"]}
    assert {name: (item["loads"], item["runs"]) for name, item in read.items()} == {
        "folder/a_good": (True, True),
        "folder/b_writes": (True, False),
        "folder/c_broken": (False, None),
        "folder/c_needs": (True, False),
        "folder/d_giant": (True, None),
    }
    assert "PermissionError" in read["folder/b_writes"]["error"]
    assert "pip install nowhere_installed" in read["folder/c_needs"]["error"]
    assert "4 of 5 load; 1 run, 2 fail, 1 not run for their size; 0 would be excluded" in capsys.readouterr().out
