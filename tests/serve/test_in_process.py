"""A real small model answering within this process: seeds, counts, the window, and what cannot be loaded."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kb_ray.errors import ConfigError, ContextError
from kb_ray.model import drawing
from kb_ray.model.completer import Request
from kb_ray.model.in_process import InProcessCompleter
from kb_ray.records import Message, Sampling

QUESTION = (Message(role="user", content="Count from one to five."),)


def request(seed: int = 1, temperature: float = 1.0, max_tokens: int = 6) -> Request:
    sampling = Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed)
    return Request(messages=QUESTION, sampling=sampling, task_id="t")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(smollm2_folder: Path) -> AsyncIterator[InProcessCompleter]:
    found = InProcessCompleter(str(smollm2_folder), local=True)
    info = await found.check()
    assert info.in_process
    assert info.max_model_len == found.window == 8192
    yield found
    await found.aclose()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_seed_repeats_an_answer_and_another_seed_changes_it(model: InProcessCompleter) -> None:
    texts = [(await model.complete(request(seed, 1.5))).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.asyncio(loop_scope="module")
async def test_many_who_ask_at_once_get_what_each_gets_alone(
    model: InProcessCompleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [request(seed, 1.2, max_tokens=4 + seed % 3) for seed in range(9)]
    alone = [(await model.complete(one)).text for one in asked]
    # Three or so at a time.
    monkeypatch.setattr(drawing, "room", lambda _: 150)
    together = await asyncio.gather(*(model.complete(one) for one in asked))
    assert [answer.text for answer in together] == alone
    assert len({answer.text for answer in together}) > 5


@pytest.mark.asyncio(loop_scope="module")
async def test_tokens_are_the_models_own(model: InProcessCompleter) -> None:
    answer = await model.complete(request(temperature=0.0))
    assert answer.usage.prompt_tokens == await model.count_tokens(QUESTION)
    assert answer.usage.prompt_tokens > 10
    assert (answer.usage.completion_tokens, answer.finish_reason) == (6, "length")
    assert answer.model.startswith("smollm2-135m@")


@pytest.mark.asyncio(loop_scope="module")
async def test_what_does_not_fit_the_window_is_a_context_error(model: InProcessCompleter) -> None:
    with pytest.raises(ContextError, match="8192"):
        await model.complete(request(max_tokens=8190))


def test_other_weights_under_the_same_name_are_another_model(tmp_path: Path) -> None:
    names = []
    for weights in (b"one", b"two"):
        folder = tmp_path / "rl_final"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(weights)
        names.append(InProcessCompleter(str(folder), local=True).model)
        shutil.rmtree(folder)
    assert names[0] != names[1]
    assert all(name.startswith("rl_final@") for name in names)


async def test_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        await InProcessCompleter(str(tmp_path), local=True).check()
    assert "\n" not in str(caught.value)
