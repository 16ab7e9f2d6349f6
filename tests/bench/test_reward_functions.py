"""The examples of docs/reward_functions.md as they stand there, called as their trainers call them, with real verdicts.

The service answers over real HTTP from the session's evaluator; TRL's own code calls the function for TRL.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kb_ray.bench.api import answer
from kb_ray.bench.client import to_verdict
from kb_ray.bench.host import Evaluator
from kb_ray.bench.protocol import BenchRequest
from kb_ray.bench.service import Service
from kb_ray.errors import InfraError
from kb_ray.records import Environment, Evidence, Stage, Status, Verdict
from tests.fixtures_bench import ADD_RELU, KERNEL, changed
from tests.unit.bench.http_pieces import serving

PAGE = Path(__file__).parents[2] / "docs" / "reward_functions.md"
SHAPES = '{"x": {"shape": [16, 8]}, "y": {"shape": [16, 8]}}'
ANSWERS = {
    f"Here it is.\n```python\n{KERNEL}```\n": 0.7,
    f"```python\n{changed('x + y, 0.0', 'x - y, 0.0')}```": 0.3,
    "```python\nimport torch\n\ndef triton_kernel_wrapper(x, y):\n    return torch.relu(x + y)\n```": 0.0,
    "I cannot do that.": 0.0,
}
"""Answers of a model, and what each is worth where nothing is timed."""
ENDLESS = f"<triton>\n{KERNEL}{'# and so on ' * 20_000}\n</triton>"
BAD_TASKS = {
    "no program": ("x = 1", None, "defines neither"),
    "no reference": (None, None, "is empty"),
    "shapes that are no JSON": (ADD_RELU.reference_code, "x: 16", "input_shapes is not JSON"),
    "shapes without end": (ADD_RELU.reference_code, "[" * 100_000, "input_shapes is not JSON"),
    "shapes of no size": (ADD_RELU.reference_code, '{"x": {"shape": [NaN]}}', "a list of sizes, not [nan]"),
    "half a character": ("x = '\ud800'", SHAPES, "reference_torch_code cannot be written as JSON"),
    "shapes of no dtype": (ADD_RELU.reference_code, '{"x": {"shape": [8], "dtype": "float31"}}', "float31"),
}
"""(reference, shapes, what is logged) of rows of a data set that nobody can use."""


@dataclass
class Local:
    """The session's evaluator as what a service asks."""

    evaluator: Evaluator
    capacity: int = 2
    ready: int = 1
    lost: str | None = None

    @property
    def stats(self) -> Local:
        return self

    async def evaluate(self, request: BenchRequest) -> Verdict:
        return await asyncio.to_thread(self.evaluator.evaluate, request)


def examples() -> dict[str, str]:
    """The page's Python files by the name in their first line."""
    blocks = re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return dict(blocks)


@pytest.fixture(scope="module")
def example(evaluator: Evaluator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Imports an example by its name, with the service up that it asks."""
    folder = tmp_path_factory.mktemp("examples")
    for name, text in examples().items():
        (folder / f"{name}.py").write_text(text)
    with serving(Service(Local(evaluator), "cpu")) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KB_BENCH_URL", url)
        patch.syspath_prepend(str(folder))
        yield importlib.import_module
        for name in examples():
            if (module := sys.modules.pop(name, None)) is not None and hasattr(module, "bench"):
                module.bench().close()


def test_trl_gets_a_reward_for_each_completion_from_its_own_call(example: Any) -> None:
    pytest.importorskip("trl", reason="trl is not installed: make test installs it")
    from trl import GRPOTrainer

    reward = example("trl_reward").kernel_reward
    chats = [[{"role": "assistant", "content": text}] for text in ANSWERS]
    prompts = [[{"role": "user", "content": "write a kernel"}]] * len(chats)
    columns = {"reference_code": ADD_RELU.reference_code, "input_shapes": SHAPES, "task_id": "t", "level": 1}
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device="cpu"), reward_funcs=[reward], reward_processing_classes=[None],
        reward_func_names=["kernel_reward"], state=None, environments=None, _log_completion_extra=None,
        _log_metric=None,
    )  # fmt: skip
    call = inspect.unwrap(GRPOTrainer._calculate_rewards)
    with pytest.MonkeyPatch.context() as patch:
        module = sys.modules[GRPOTrainer.__module__]
        # What only measures, or needs several processes.
        patch.setattr(module, "profiling_context", lambda *_: contextlib.nullcontext())
        patch.setattr(module, "gather", lambda rewards: rewards)
        got = call(trainer, [{"prompt": p, **columns} for p in prompts], prompts, chats, [[1]] * len(chats))
    assert got[:, 0].tolist() == pytest.approx(list(ANSWERS.values()))


def test_verl_gets_a_score_for_each_answer_and_the_same_keys(example: Any) -> None:
    module: ModuleType = example("verl_reward")
    assert list(inspect.signature(module.compute_score).parameters)[:4] == [
        "data_source", "solution_str", "ground_truth", "extra_info",
    ]  # fmt: skip
    scores = [
        module.compute_score(
            data_source="kernels", solution_str=text, ground_truth=ADD_RELU.reference_code,
            extra_info={"input_shapes": SHAPES}, reward_router_address=None,
        )
        for text in ANSWERS
    ]  # fmt: skip
    assert [score["score"] for score in scores] == list(ANSWERS.values())
    assert {tuple(score) for score in scores} == {("score", "correct", "speedup")}
    assert [score["correct"] for score in scores] == [1.0, 0.0, 0.0, 0.0]


def test_an_answer_without_end_is_worth_nothing_and_takes_nothing_from_others(example: Any) -> None:
    good = next(iter(ANSWERS))
    code = example("kernel_rewards").code_of(ENDLESS)
    assert len(code) > 200_000, "it is the service that must bear it, not the extraction"
    rewards = example("trl_reward").kernel_reward([good, ENDLESS], [ADD_RELU.reference_code] * 2, [SHAPES] * 2)
    assert rewards == [0.7, 0.0]
    score = example("verl_reward").compute_score("kernels", ENDLESS, ADD_RELU.reference_code, {"input_shapes": SHAPES})
    assert score == {"score": 0.0, "correct": 0.0, "speedup": 0.0}


@pytest.mark.parametrize(("reference", "shapes", "said"), BAD_TASKS.values(), ids=BAD_TASKS)
def test_a_task_that_cannot_be_used_is_told_once_and_ends_no_training(
    example: Any, caplog: pytest.LogCaptureFixture, reference: str | None, shapes: str | None, said: str
) -> None:
    good = next(iter(ANSWERS))
    example("kernel_rewards").tell.cache_clear()
    for _ in range(2):
        columns = [ADD_RELU.reference_code, reference], [SHAPES, shapes]
        assert example("trl_reward").kernel_reward([good, good], *columns) == [0.7, None]
    (told,) = (record.getMessage() for record in caplog.records if record.name == "kernel_rewards")
    assert said in told
    score = example("verl_reward").compute_score("kernels", good, reference, {"input_shapes": shapes})
    assert score == {"score": 0.0, "correct": 0.0, "speedup": 0.0}


def test_a_failure_of_our_own_still_stops_the_training_where_there_is_no_word_for_it(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: Any) -> None:
        raise InfraError("the node is gone")

    module = example("verl_reward")
    monkeypatch.setattr(module.bench(), "evaluate", fails)
    with pytest.raises(InfraError, match="the node is gone"):
        module.compute_score("kernels", next(iter(ANSWERS)), ADD_RELU.reference_code)


CPU, GPU = Environment(device="cpu"), Environment(device="cuda")
FAST = {"trusted": True, "speedup": 1.0, "env": GPU}


@pytest.mark.parametrize(
    ("status", "fields", "worth"),
    [
        (Status.OK, FAST, 0.85),
        (Status.OK, FAST | {"speedup": 9.0}, 1.0),
        (Status.OK, FAST | {"trusted": False}, None),
        (Status.OK, {"env": CPU}, 0.7),
        (Status.OK, {"env": CPU, "evidence": Evidence(flags=("zeros_pass",))}, None),
        (Status.HACK, FAST, 0.0),
        (Status.INFRA_ERROR, {"env": GPU}, None),
    ],
)
def test_a_verdict_is_worth_what_the_page_says(
    example: Any, status: Status, fields: dict[str, Any], worth: float | None
) -> None:
    verdict = Verdict.of(status, Stage.TIMING, **fields)
    mapping = answer(verdict) | {"request_id": "mine"}
    assert to_verdict(mapping) == verdict
    assert example("kernel_rewards").reward_of(mapping) == (None if worth is None else pytest.approx(worth))


def test_what_the_training_script_imports_is_there() -> None:
    pytest.importorskip("trl", reason="trl is not installed: make test installs it")
    from trl import GRPOConfig, GRPOTrainer

    calls = [node for node in ast.walk(ast.parse(examples()["train"])) if isinstance(node, ast.Call)]
    named = {ast.unparse(call.func): {word.arg for word in call.keywords} for call in calls}
    for of in (GRPOConfig, GRPOTrainer):
        assert named[of.__name__] <= set(inspect.signature(of.__init__).parameters)
