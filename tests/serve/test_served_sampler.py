"""Adapters of a learner served by real vLLM: each published step answers with the learner's own probabilities."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kb_ray.errors import ModelError
from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings, LoraSettings, Objective
from kb_ray.learn.samples import Drawn, Sample
from kb_ray.learn.served import ServedSampler
from kb_ray.model.tokens_http import TokenClient
from kb_ray.records import Message, Sampling
from kb_ray.traces.store import Store, open_store
from kb_ray.training.publishing import Publisher
from tests.fixtures_s3 import S3Server

MODEL = "smollm2-135m-instruct"
SAMPLING = Sampling(temperature=0.8, max_tokens=12)
ASKED = [(Message(role="user", content=text),) for text in ("Name an animal.", "Say hello.", "Count to five.")]
NEAR = 0.05


@pytest.fixture(scope="module")
def learner(smollm2_folder: Path) -> Learner:
    settings = LearnerSettings(
        model=str(smollm2_folder), lora=LoraSettings(rank=8, alpha=16, dropout=0.0), learning_rate=2e-3
    )
    return Learner(settings, device="cpu")


@pytest.fixture
async def client(smollm2_url: str) -> AsyncIterator[TokenClient]:
    client = TokenClient(smollm2_url, max_concurrent=3)
    yield client
    await client.aclose()


@pytest.fixture
def adapters(adapters_uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(adapters_uri)


async def test_after_each_publish_the_served_adapter_is_the_learner(
    learner: Learner, client: TokenClient, adapters: Store
) -> None:
    publisher = Publisher(adapters, MODEL, "parity", "a")
    sampler = ServedSampler(client, learner.tokenizer, SAMPLING, 4096, publisher.publish(learner), learner.steps)
    prompts = [sampler.prompt(messages) for messages in ASKED]
    gaps, moved = [], []
    for _ in range(3):
        samples = await drawn(sampler, prompts)
        gaps.append(gap(learner, samples, SAMPLING.temperature))
        learner.step(samples, Objective(kind="likelihood", averaging="token"))
        moved.append(gap(learner, samples, SAMPLING.temperature))
        sampler = await sampler.at(publisher.publish(learner), learner.steps)
    gaps.append(gap(learner, await drawn(sampler, prompts), SAMPLING.temperature))
    assert max(gaps) < NEAR, "of the step that was asked for"
    assert min(moved) > 2 * NEAR, "a step changes the probabilities by more, so that the step before would be seen"
    assert sampler.model == f"{MODEL}:parity-a-step000003"


async def test_an_adapter_that_was_not_published_is_refused(learner: Learner, client: TokenClient) -> None:
    sampler = ServedSampler(client, learner.tokenizer, SAMPLING, 4096, f"{MODEL}:parity-a-step000099", 99)
    with pytest.raises(ModelError, match="parity-a-step000099"):
        await sampler.draw([sampler.prompt(ASKED[0])], seed=0)


async def drawn(sampler: ServedSampler, prompts: list[tuple[int, ...]]) -> list[Sample]:
    answers = await sampler.draw(prompts, seed=3)
    return [as_sample(*pair) for pair in zip(prompts, answers, strict=True)]


def as_sample(prompt: tuple[int, ...], drawn: Drawn) -> Sample:
    assert len(drawn.tokens) == len(drawn.logprobs)
    trained = (False,) * len(prompt) + (True,) * len(drawn.tokens)
    return Sample(prompt + drawn.tokens, trained, logprobs=drawn.logprobs)


def gap(learner: Learner, samples: list[Sample], temperature: float) -> float:
    """The largest difference of any token's log-probability, at the temperature of the draw."""
    own = learner.logprobs(samples, temperature)
    return max(
        abs(float(mine) - told)
        for values, sample in zip(own, samples, strict=True)
        for mine, told in zip(values, sample.logprobs or (), strict=True)
    )
