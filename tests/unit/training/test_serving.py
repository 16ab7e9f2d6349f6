"""A run whose answers a server draws: every step is published first, and answers say of which step they are.

The server is a real one over HTTP that draws from two answers; real vLLM with real adapters is tests/serve's.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kb_ray.errors import ConfigError, ModelError
from kb_ray.records import Episode
from kb_ray.traces.store import LocalStore
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
    """Serves the base model, and every adapter that is in `adapters`."""

    def __init__(self, adapters: Path) -> None:
        super().__init__()
        self.replies = [self.answer]
        self.asked: list[str] = []
        self._adapters = adapters

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"data": [{"id": "tiny", "max_model_len": 4096}]})
        body = await request.json()
        self.asked.append(body["model"])
        name = body["model"].partition(":")[2]
        if not (self._adapters / name / "adapter_config.json").is_file():
            return web.json_response({"error": {"message": f"no adapter {name}"}}, status=404)
        tokens = [random.Random(body["seed"]).choice(ANSWERS), END]
        choice = {"token_ids": tokens, "logprobs": {"token_logprobs": [-0.69, 0.0]}, "finish_reason": "stop"}
        return web.json_response({"model": body["model"], "choices": [choice]})


async def run(model: Path, folder: Path, url: str, **changes: Any) -> list[Episode]:
    kept: list[Episode] = []
    settings = grpo(model, folder / "run", vllm_url=url, adapters_path=str(folder / "lora"), steps=4, **changes)
    await train(settings, TASKS, Judges(judge, kept.append, "r"), opening, lambda line: None, "cpu")
    return kept


async def test_each_batch_is_of_the_step_published_before_the_one_under_way(model: Path, tmp_path: Path) -> None:
    async with running(Vllm(tmp_path / "lora")) as server:
        kept = await run(model, tmp_path, server.url)
    answered = [episode.turns[0].policy_version for episode in kept[::64]]
    assert answered == ["0", "0", "1", "2"]
    assert {episode.turns[0].completion.model for episode in kept[-64:]} == {"tiny:r-step000002"}
    published = {key.partition("/")[0] for key in LocalStore(str(tmp_path / "lora")).list("")}
    assert published == {f"r-step00000{step}" for step in (1, 2, 3, 4)}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["Train/left_out"] for line in lines] == [0.0] * 4


async def test_started_again_it_goes_on_with_the_last_step(model: Path, tmp_path: Path) -> None:
    async with running(Vllm(tmp_path / "lora")) as server:
        await run(model, tmp_path, server.url)
        server.asked.clear()
        kept = await run(model, tmp_path, server.url)
    assert (kept, set(server.asked)) == ([], {"tiny:r-step000004"})


async def test_what_cannot_be_served_is_one_line(model: Path, tmp_path: Path) -> None:
    settings = grpo(model, tmp_path / "run", vllm_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="go together"):
        await train(settings, TASKS, Judges(judge, lambda _: None, "r"), opening, lambda line: None, "cpu")
    with pytest.raises(ConfigError, match="does not answer"):
        await run(model, tmp_path / "away", "http://127.0.0.1:9/v1")
    async with running(Vllm(tmp_path / "elsewhere")) as server:
        with pytest.raises(ModelError, match="no adapter r-step000000"):
            await run(model, tmp_path / "other", server.url)
