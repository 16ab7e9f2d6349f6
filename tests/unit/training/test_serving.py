"""A run whose answers a server draws: every step is published first, and answers say of which step they are.

The server is a real one over HTTP that draws from two answers; real vLLM with real adapters is tests/serve's.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kb_ray.errors import ConfigError, ModelError
from kb_ray.learn.learner import Learner
from kb_ray.records import Episode
from kb_ray.traces.store import LocalStore
from kb_ray.training.publishing import Publisher
from kb_ray.training.rl_run import Judges, train
from tests.unit.learn import tiny
from tests.unit.learn.test_grpo import TASKS, judge
from tests.unit.model.model_server import ModelServer, running
from tests.unit.training.test_rl_run import grpo, opening

END, ANSWERS = 2, (tiny.WORDS.index(tiny.GOOD), tiny.WORDS.index(tiny.WRONG))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_model(tmp_path_factory.mktemp("model"))


class Vllm(ModelServer):
    """Serves the base model, and every adapter that is in `adapters`; what it has loaded under a name it keeps."""

    def __init__(self, adapters: Path) -> None:
        super().__init__()
        self.replies = [self.answer]
        self.asked: list[str] = []
        self.loaded: dict[str, str] = {}
        """Hashes of weights, by name."""
        self._adapters = adapters

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"data": [{"id": "tiny", "max_model_len": 4096}]})
        body = await request.json()
        self.asked.append(body["model"])
        name = body["model"].partition(":")[2]
        if name not in self.loaded:
            if not (self._adapters / name / "adapter_config.json").is_file():
                return web.json_response({"error": {"message": f"no adapter {name}"}}, status=404)
            self.loaded[name] = weights(self._adapters / name)
        tokens = [random.Random(f"{body['seed']} {self.loaded[name]}").choice(ANSWERS), END]
        choice = {"token_ids": tokens, "logprobs": {"token_logprobs": [-0.69, 0.0]}, "finish_reason": "stop"}
        return web.json_response({"model": body["model"], "choices": [choice]})


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "adapter_model.safetensors").read_bytes()).hexdigest()


def step_of(name: str) -> int:
    found = re.fullmatch(r"tiny:r-[0-9a-f]{8}-step(\d{6})", name)
    assert found, name
    return int(found[1])


async def run(model: Path, folder: Path, url: str, **changes: Any) -> list[Episode]:
    kept: list[Episode] = []
    given = {"vllm_url": url, "adapters_path": str(folder / "lora"), "steps": 4} | changes
    judges = Judges(judge, kept.append, "r")
    await train(grpo(model, folder / "run", **given), TASKS, judges, opening, lambda line: None, "cpu")
    return kept


async def test_each_batch_is_of_the_step_published_before_the_one_under_way(model: Path, tmp_path: Path) -> None:
    async with running(Vllm(tmp_path / "lora")) as server:
        kept = await run(model, tmp_path, server.url)
    answered = [episode.turns[0].policy_version or "" for episode in kept[::64]]
    assert [step_of(name) for name in answered] == [0, 0, 1, 2]
    assert {episode.turns[0].completion.model for episode in kept[-64:]} == {answered[-1]}
    published = {key.partition("/")[0] for key in LocalStore(str(tmp_path / "lora")).list("")}
    assert {step_of(f"tiny:{name}") for name in published} == {1, 2, 3, 4}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["Train/left_out"] for line in lines] == [0.0] * 4


async def test_started_again_it_goes_on_with_the_last_step(model: Path, tmp_path: Path) -> None:
    async with running(Vllm(tmp_path / "lora")) as server:
        await run(model, tmp_path, server.url)
        before = set(server.asked)
        server.asked.clear()
        kept = await run(model, tmp_path, server.url)
    (asked,) = set(server.asked)
    assert (kept, step_of(asked)) == ([], 4)
    assert asked not in before


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize(("every", "last"), [(3, 5), (8, 15)])
async def test_killed_and_started_again_no_answer_is_of_other_weights_than_the_learners(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, last: int
) -> None:
    """Steps are taken again after the checkpoint, to other weights; the server still has those of the first time, also
    where their files are gone."""
    published: list[tuple[str, str]] = []
    real = Publisher.publish

    def publish(self: Publisher, learner: Learner) -> str:
        if len(published) == last + 1 == learner.steps:
            raise Killed
        name = real(self, learner)
        published.append((name, weights(tmp_path / "lora" / name.partition(":")[2])))
        return name

    monkeypatch.setattr(Publisher, "publish", publish)
    more = {"steps": last + 3, "checkpoint_every": every}
    async with running(Vllm(tmp_path / "lora")) as server:
        with pytest.raises(Killed):
            await run(model, tmp_path, server.url, **more)
        first = len(published)
        await run(model, tmp_path, server.url, **more)
    steps = [[step_of(name) for name, _ in part] for part in (published[:first], published[first:])]
    assert set(steps[0]) & set(steps[1]), "steps were taken again"
    again = {step_of(name): hash_ for name, hash_ in published[first:]}
    assert any(again.get(step_of(name), hash_) != hash_ for name, hash_ in published[:first]), "to other weights"
    assert len(dict(published)) == len(published)
    assert all(server.loaded[name.partition(":")[2]] == hash_ for name, hash_ in published)


async def test_what_cannot_be_served_is_one_line(model: Path, tmp_path: Path) -> None:
    settings = grpo(model, tmp_path / "run", vllm_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="go together"):
        await train(settings, TASKS, Judges(judge, lambda _: None, "r"), opening, lambda line: None, "cpu")
    with pytest.raises(ConfigError, match="does not answer"):
        await run(model, tmp_path / "away", "http://127.0.0.1:9/v1")
    async with running(Vllm(tmp_path / "elsewhere")) as server:
        with pytest.raises(ModelError, match=r"no adapter r-[0-9a-f]{8}-step000000"):
            await run(model, tmp_path / "other", server.url)
