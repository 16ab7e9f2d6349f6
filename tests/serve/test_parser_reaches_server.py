"""A deployment's `engine.reasoning_parser` is what vLLM's server of chats is made with, by ray.serve.llm and no engine.

Ray's own start of a replica runs, and vLLM's own making of its server; in place of the engine there is a stub.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deployments import app
from tests.unit.deployments.test_memory import BILLIONS, PUBLISHED, model_of

PARSERS = {name: model_of(name).engine.get("reasoning_parser") for name in BILLIONS}

_START = """
import asyncio, json, sys
from unittest.mock import AsyncMock, MagicMock
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from ray.llm._internal.serve.engines.vllm.vllm_models import VLLMEngineConfig
from ray.serve.llm import LLMConfig
from vllm.config.reasoning import ReasoningConfig
from vllm.entrypoints.openai.chat_completion import serving

class Made(Exception):
    pass

def chats(server, **settings):
    raise Made(settings["reasoning_parser"])

async def parser_of(config):
    config = LLMConfig(**config)
    config.get_or_create_callback().ctx.run_init_node = False
    engine = VLLMEngine(config)
    stub = MagicMock()
    stub.get_supported_tasks = AsyncMock(return_value=("generate",))
    engine._start_async_llm_engine = lambda *_: stub
    try:
        await engine.start()
    except Made as made:
        return made.args[0]

# It would start a Ray, and look up the marks of reasoning in a vocabulary.
VLLMEngineConfig.get_or_create_pg = ReasoningConfig.initialize_token_ids = lambda *_: None
serving.OpenAIServingChat.__init__ = chats
print("\\n" + json.dumps({name: asyncio.run(parser_of(config)) for name, config in json.load(sys.stdin).items()}))
"""


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """File -> the parser that vLLM's server of chats is made with. Its engine's other arguments need its GPUs."""
    folder = tmp_path_factory.mktemp("model")
    shutil.copy(PUBLISHED / "qwen25_coder_7b.json", folder / "config.json")
    configs = {}
    for name in BILLIONS:
        engine = {key: value for key, value in model_of(name).engine.items() if key == "reasoning_parser"}
        model = {"model_id": name, "source": str(folder), "device": "cpu"}
        args = app.parse({"models": [{**model, "engine": {**engine, "skip_tokenizer_init": True}}]})
        (configs[name],) = app.serving_args(args)["llm_configs"]
    done = subprocess.run(
        [sys.executable, "-c", _START], input=json.dumps(configs), capture_output=True, text=True, timeout=300,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_the_parser_of_a_deployment_is_the_servers(reached: dict[str, str]) -> None:
    assert {name: parser or None for name, parser in reached.items()} == PARSERS
    assert sum(parser is not None for parser in PARSERS.values()) == 3
