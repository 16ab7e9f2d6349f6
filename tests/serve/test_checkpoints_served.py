"""A run's checkpoint on S3, served by real vLLM by the command: it answers as the learner does, under its own name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from deployments import adapters
from kb_ray.learn.chat import ChatTokens
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings, LoraSettings, Objective
from kb_ray.learn.samples import Sample
from kb_ray.learn.served import ServedSampler
from kb_ray.model.tokens_http import TokenClient, body_of
from kb_ray.records import Sampling
from kb_ray.traces.store import open_store
from kb_ray.training import keeping
from tests.fixtures_s3 import S3Server, free_ports
from tests.serve.test_served_sampler import ASKED, NEAR, as_sample, gap

ROOT = Path(__file__).parents[2]
NAME = "run-step000002"
SAMPLING = Sampling(temperature=1.0, max_tokens=12)


def make_learner(folder: Path) -> Learner:
    """Its rank is none of those that vLLM knows."""
    lora = LoraSettings(rank=10, alpha=20, dropout=0.0)
    return Learner(LearnerSettings(model=str(folder), lora=lora, learning_rate=2e-3), device="cpu")


@pytest.fixture(scope="module")
def learner(smollm2_folder: Path) -> Learner:
    """One that has taken two steps towards an answer that the base model would not give."""
    found = make_learner(smollm2_folder)
    chat, answer = ChatTokens(found.tokenizer), tuple(found.tokenizer("purple kettles, of course")["input_ids"])
    prompts = [chat.prompt([{"role": "user", "content": one.content} for one in messages]) for messages in ASKED]
    samples = [Sample(prompt + answer, (False,) * len(prompt) + (True,) * len(answer)) for prompt in prompts]
    for _ in range(2):
        found.step(samples, Objective(kind="likelihood", averaging="token"))
    return found


@pytest.fixture(scope="module")
def url(learner: Learner, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `python -m kb_ray.serve s3://...` serves the learner's checkpoint, in a Ray of its own."""
    scratch, (port,) = tmp_path_factory.mktemp("served"), free_ports(1)
    run = f"s3://{s3_server.bucket}/served/run"
    with pytest.MonkeyPatch.context() as patched:
        for name, value in s3_server.env.items():
            patched.setenv(name, value)
        keeping.save(open_store(run), learner, "f", {})
    environment = {**os.environ, **s3_server.env, "RAY_ADDRESS": "local", "XDG_CACHE_HOME": str(scratch / "cache")}
    command = [sys.executable, "-m", "kb_ray.serve", run, "--port", str(port)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said = []
            assert process.stdout is not None
            for line in iter(process.stdout.readline, ""):
                said.append(line)
                if line.startswith("serving at "):
                    break
            assert said[-1].startswith("serving at "), "".join(said)
            assert said[0].startswith(f"model {NAME}: {run}/checkpoints/step000002/adapter over ")
            yield said[-1].split()[2]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the server answers to a GET, or to a POST of `body`."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


async def test_it_answers_as_the_learner_and_not_as_its_base(url: str, learner: Learner, smollm2_folder: Path) -> None:
    assert [model["id"] for model in ask(f"{url}/models")["data"]] == [NAME]
    client = TokenClient(url, max_concurrent=3)
    sampler = ServedSampler(client, learner.tokenizer, SAMPLING, 4096, NAME, learner.steps)
    prompts = [sampler.prompt(messages) for messages in ASKED]
    drawn = await sampler.draw(prompts, seed=3)
    await client.aclose()
    samples = [as_sample(*pair) for pair in zip(prompts, drawn, strict=True)]
    assert gap(learner, samples, SAMPLING.temperature) < NEAR
    base = make_learner(smollm2_folder)
    assert gap(base, samples, SAMPLING.temperature) > 2 * NEAR, "the base model would be told apart"


def test_a_request_that_names_no_model_is_answered_by_the_only_one(url: str, learner: Learner) -> None:
    chat = ChatTokens(learner.tokenizer)
    prompt = chat.prompt([{"role": "user", "content": ASKED[0][0].content}])
    body = body_of(NAME, prompt, Sampling(temperature=0.0, max_tokens=8), 0, chat.end)
    named, unnamed = (ask(f"{url}/completions", one) for one in (body, {**body, "model": None}))
    assert (named["model"], unnamed["model"]) == (NAME, NAME)
    told, unsaid = (answer["choices"][0]["logprobs"]["token_logprobs"] for answer in (named, unnamed))
    assert unsaid == pytest.approx(told, abs=1e-4)
    said = ask(f"{url}/chat/completions", {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4})
    assert said["model"] == NAME
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(f"{url}/completions", {**body, "model": "smollm2-135m-instruct"})


def test_what_is_refused_is_known_to_the_pinned_vllm_and_peft() -> None:
    from peft import LoraConfig
    from vllm.config.lora import MaxLoRARanks

    assert get_args(MaxLoRARanks) == adapters._RANKS
    assert set(adapters._UNSERVED) <= {field.name for field in fields(LoraConfig)}
