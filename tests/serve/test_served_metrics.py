"""What the dashboard asks of the model server, of Serve and of the nodes is exported by a served model."""

from __future__ import annotations

import asyncio
import time

import httpx

from tests.scraping import dashboard, metrics_in, queries, scrape

MODEL = "smollm2-135m-instruct"
NEEDS_A_GPU = {"ray_node_gpus_utilization"}
"""Held against Ray's own definitions in tests/unit/watching."""


async def test_every_query_about_the_model_server_names_a_metric_that_is_exported(smollm2_url: str) -> None:
    asked = {name for query in queries(dashboard()) for name in metrics_in(query) if "kb_ray" not in name}
    assert len(asked) > 15
    async with httpx.AsyncClient(timeout=120) as client:
        # The same long beginning twice, so that the second finds it in the prefix cache.
        for ending in ("one", "two"):
            message = {"role": "user", "content": "Count the words. " * 60 + ending}
            body = {"model": MODEL, "messages": [message], "max_tokens": 8}
            answer = await client.post(f"{smollm2_url}/chat/completions", json=body)
            assert answer.status_code == 200
        refused = await client.post(f"{smollm2_url}/chat/completions", json={"model": "gpt-17", "messages": []})
        assert refused.status_code >= 400
    end = time.monotonic() + 300
    while missing := asked - NEEDS_A_GPU - {sample.name for sample in scrape()}:
        assert time.monotonic() < end, missing
        await asyncio.sleep(5)
