"""`python -m kb_ray.bench`: exit codes and what is printed, with a real Evaluator on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from kb_ray.bench import __main__ as bench_command
from kb_ray.bench import api
from kb_ray.bench.__main__ import main, show
from kb_ray.bench.sweep import base_dir
from kb_ray.errors import ConfigError, InfraError, KbRayError
from kb_ray.records import Environment, ErrorDetail, Stage, Status, Timing, Verdict
from tests.fixtures_bench import ADD_RELU
from tests.fixtures_bench import KERNEL as ADD_RELU_KERNEL

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(24)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2, mask=offsets < n)


def triton_kernel_wrapper(x):
    out = torch.empty_like(x)
    double[(1,)](x, out, x.numel(), BLOCK=32)
    return out
"""
WRONG = KERNEL.replace("x * 2", "x * 3")
FEW = ["--device", "cpu", "--n-correctness", "2", "--n-trials", "3"]


@pytest.fixture(scope="module", autouse=True)
def _evaluator_ends_with_the_module() -> Iterator[None]:
    yield
    for worker in api._local.values():
        worker.stop()
    api._local.clear()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "right.py").write_text(KERNEL)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "ref.py").write_text(PROBLEM)
    return tmp_path


def test_a_process_of_its_own_prints_a_verdict_exits_0_and_leaves_nothing(files: Path) -> None:
    command = [sys.executable, "-m", "kb_ray.bench", "right.py", "--reference", "ref.py", *FEW]
    process = subprocess.Popen(
        command, cwd=files, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(Path.cwd())}
    )
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    assert printed.startswith("ok: stage full, 2 of 2 input sets passed"), printed
    assert not list(base_dir().glob(f"kb-bench-local-{process.pid}-*"))


@pytest.mark.parametrize(
    ("safe", "names"),
    [([], ("struct", "copy", "json")), (["-P"], ("types", "functools", "contextlib", "warnings", "kb_ray"))],
    ids=["any", "those that python -m needs"],
)
def test_a_candidate_named_like_a_module_of_pythons_is_a_candidate_alone(
    files: Path, safe: list[str], names: tuple[str, ...]
) -> None:
    for name in names:
        (files / f"{name}.py").write_text(KERNEL)
    command = [sys.executable, *safe, "-m", "kb_ray.bench", f"{names[1]}.py", "--reference", "ref.py", *FEW]
    done = subprocess.run(
        command, cwd=files, capture_output=True, text=True, env={"PYTHONPATH": str(Path.cwd())}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok: "), done.stdout


def test_a_wrong_kernel_exits_1_and_says_what_differs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(files / "wrong.py"), "--reference", str(files / "ref.py"), *FEW]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("mismatch: ")
    assert "CORRECTNESS ERROR: " in printed


def test_json_is_the_whole_mapping(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(files / "right.py"), "--reference", str(files / "ref.py"), "--json", *FEW]) == 0
    assert json.loads(capsys.readouterr().out).keys() >= Verdict.model_fields.keys()


def test_jsonl_answers_each_row_once_by_its_id(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = {"a": KERNEL, "b": WRONG, "c": "no code (", "d": KERNEL}
    rows = [{"id": id, "kernel_code": code, "problem_code": PROBLEM} for id, code in codes.items()]
    (files / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["--jsonl", str(files / "rows.jsonl"), *FEW]) == 1
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {answer["id"]: answer["status"] for answer in answers} == {
        "a": "ok", "b": "mismatch", "c": "syntax_error", "d": "ok",
    }  # fmt: skip
    assert len(answers) == 4


def test_a_row_may_have_a_reference_and_shapes_as_the_python_api_takes_them(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": 1, "kernel_code": ADD_RELU_KERNEL, "reference_torch_code": ADD_RELU.reference_code}
    shapes = {name: spec.model_dump() for name, spec in (ADD_RELU.input_shapes or {}).items()}
    both = row | {"id": 2, "problem_code": PROBLEM}
    (files / "rows.jsonl").write_text("\n".join(map(json.dumps, (row | {"input_shapes": shapes}, both))))
    assert main(["--jsonl", str(files / "rows.jsonl"), *FEW]) == 2
    answers = {row["id"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert answers[1]["status"] == "ok"
    assert answers[2]["error"] == "line 2 has problem_code and reference_torch_code: give one of them"


@pytest.mark.parametrize(("device", "why"), [("cpu", "there is no GPU"), ("cuda", "only checked")])
def test_why_a_right_kernel_was_not_timed_is_what_is_so(device: Literal["cpu", "cuda"], why: str) -> None:
    verdict = Verdict.of(Status.OK, Stage.FULL, verifier_version="1", env=Environment(device=device))
    assert f"not timed: {why}" in show(verdict)


def test_a_rows_own_settings_go_before_the_command_lines(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"kernel_code": KERNEL, "problem_code": PROBLEM}
    rows = [row | {"id": 1, "n_correctness": 3}, row | {"id": 2, "tf32": None}, row | {"id": 3, "torch_ops": "some"}]
    (files / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["--jsonl", str(files / "rows.jsonl"), *FEW]) == 2
    answers = {row["id"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (answers[1]["tests_total"], answers[2]["tests_total"]) == (3, 2)
    assert answers[3] == {"id": 3, "error": answers[3]["error"]}
    assert "torch_ops" in answers[3]["error"]


def test_a_reference_that_raises_is_unusable_input(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raising = PROBLEM.replace("def forward(self, x):", "def forward(self, x):\n        raise RuntimeError('no')")
    assert raising != PROBLEM
    (files / "ref.py").write_text(raising)
    assert main([str(files / "right.py"), "--reference", str(files / "ref.py"), *FEW]) == 2
    assert "REFERENCE ERROR: " in capsys.readouterr().out


def test_one_unusable_row_does_not_stop_the_others(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": "bad", "kernel_code": KERNEL, "problem_code": "x = 1"},
        {"id": "good", "kernel_code": KERNEL, "problem_code": PROBLEM},
    ]
    (files / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["--jsonl", str(files / "rows.jsonl"), *FEW]) == 2
    answers = {row["id"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert "neither reference_impl" in answers["bad"]["error"]
    assert answers["good"]["status"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["right.py", "--reference", "missing.py"], "cannot read missing.py"),
        (["right.py", "--reference", "ref.py", "--n-trials", "1"], "error: --n-trials: must be >= 3 (got 1)\n"),
        (
            ["right.py", "--refrence", "ref.py"],
            "error: unrecognized arguments: --refrence ref.py; did you mean --reference?; see python -m kb_ray.bench",
        ),
        (["--jsonl", "-", "--timeout", "soon"], "error: --timeout: invalid float value: 'soon'; see python -m"),
        (["--jsonl", "-", "--timeout", "0"], "error: --timeout: must be > 0.0 (got 0.0)\n"),
        (["--jsonl", "-", "--baseline", "jit"], "error: --baseline: invalid choice: 'jit'"),
        (["right.py", "--reference", "ref.py", "--input-shapes", "{"], "--input-shapes is not JSON"),
        (["--jsonl", "missing.jsonl"], "cannot read missing.jsonl"),
        (["--recheck", "."], "holds no traces"),
        (["--recheck", ".", "--device", "cuda"], "--device cuda: no NVIDIA GPU is seen here"),
        (["right.py", "--reference", "ref.py", "--device", "cuda"], "--device cuda: no NVIDIA GPU is seen here"),
        (["--recheck", ".", "--n-trials", "1"], "error: --n-trials: must be >= 3 (got 1)\n"),
    ],
)
def test_unusable_arguments_exit_2_with_one_line(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(files)
    # As where there is no GPU.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_rows_that_are_none_are_answered_by_their_lines(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "broken.jsonl").write_text('{"id": 7}\n\n[1]\n{\n{"id": "e", "kernel_code": "(", "problem_code": 5}\n')
    assert main(["--jsonl", str(files / "broken.jsonl"), *FEW]) == 2
    answers = {row["id"]: row["error"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert answers.keys() == {7, 3, 4, "e"}
    assert answers[7] == "line 1 has no kernel_code and no problem_code"
    assert answers[4].startswith("line 4 is not JSON")


def test_many_rows_are_read_as_they_are_answered(files: Path) -> None:
    """A pipe that is never closed gives its first answers while later rows are not written yet."""
    command = [sys.executable, "-m", "kb_ray.bench", "--jsonl", "-", *FEW]
    environment = {"PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        row = json.dumps({"id": 1, "kernel_code": "(", "problem_code": PROBLEM})
        process.stdin.write("\n".join([row] * 20) + "\n")
        assert json.loads(process.stdout.readline())["status"] == "syntax_error"
        process.stdin.write(row + "\n")
        process.stdin.close()
        assert len(process.stdout.readlines()) == 20
    assert process.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["a.py"], ["a.py", "--reference", "b.py", "--jsonl", "c"], ["--recheck", "s", "--jsonl", "c"],
        ["--recheck", "s", "--output", "t", "--jsonl-out", "c"], ["--jsonl", "c", "--output", "t"],
    ],
)  # fmt: skip
def test_a_wrong_combination_of_arguments_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.endswith("; see python -m kb_ray.bench --help\n")
    assert said.count("\n") == 1


def test_a_timed_verdict_shows_its_times_and_an_untrusted_one_says_so() -> None:
    kernel, reference = (Timing(median_ms=ms, trimmed_mean_ms=ms, std_ms=0, n=50) for ms in (0.5, 1.25))
    verdict = Verdict.of(Status.OK, Stage.TIMING, speedup=2.5, kernel_time=kernel, reference_time=reference)
    shown = show(verdict)
    assert "speedup 2.50x: kernel 0.5000 ms, reference 1.2500 ms" in shown
    assert "untrusted" in shown


def test_an_exceptions_words_are_shown_once() -> None:
    error = ErrorDetail(
        category="RUNTIME ERROR", message="ValueError: my own", detail="my own\nand more\nline 16: f(x)"
    )
    shown = show(Verdict.of(Status.RUNTIME_ERROR, Stage.TINY, error=error))
    assert "RUNTIME ERROR: ValueError: my own\n    and more\n    line 16: f(x)" in shown


def test_a_failure_shows_the_compilers_lines() -> None:
    error = ErrorDetail(category="COMPILATION ERROR", message="unknown name", detail="at 3:4\n    tl.nope()")
    shown = show(Verdict.of(Status.COMPILE_ERROR, Stage.COMPILE, error=error))
    assert "COMPILATION ERROR: unknown name\n    at 3:4\n        tl.nope()" in shown


def test_an_excerpt_is_shown_whole() -> None:
    excerpt = "f(\n    1,\n\n)\nboom"
    error = ErrorDetail(category="RUNTIME ERROR", message="needs a GPU: RuntimeError: boom", detail=excerpt)
    shown = show(Verdict.of(Status.RUNTIME_ERROR, Stage.TINY, error=error))
    assert "RuntimeError: boom\n    f(\n        1,\n    \n    )" in shown
    error = ErrorDetail(category="SYNTAX ERROR", message="unmatched ')' (line 3)", detail="\n)\n3)")
    shown = show(Verdict.of(Status.SYNTAX_ERROR, Stage.STATIC, error=error))
    assert "SYNTAX ERROR: unmatched ')' (line 3)\n    \n    )\n    3)" in shown


@pytest.mark.parametrize(("error", "code"), [(InfraError("Ray cannot be joined"), 3), (ConfigError("no"), 2)])
def test_where_ray_cannot_be_joined_that_is_our_own_failure(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: KbRayError, code: int
) -> None:
    def join() -> None:
        raise error

    monkeypatch.setattr(bench_command, "join", join)
    assert main([str(files / "right.py"), "--reference", str(files / "ref.py"), "--ray"]) == code
    assert capsys.readouterr().err == f"error: {error}\n"
