"""A run against a server with a small window: real driver, client, HTTP, sink and store; a stand-in gives verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError
from kb_ray.model.openai_http import OpenAICompleter
from kb_ray.preflight import preflight
from kb_ray.prompts.budget import estimated_tokens
from kb_ray.records import Episode, Message, StopReason
from kb_ray.refine import prompt_of
from tests.unit.drive_stand_ins import BAD, Bench, StandInPool
from tests.unit.window_server import Said, WindowServer, serving

THOUGHTS = "Each program takes one block of rows. " * 30
ANSWER = f"{THOUGHTS}\n{BAD}\n{THOUGHTS}"
MAX_TOKENS = 100
OPENING_WORDS, TURN_WORDS = 900, 560
"""What the opening and one turn take at most, in this server's tokens."""


async def run(folder: Path, server: WindowServer, **config: Any) -> Episode:
    completer = OpenAICompleter(server.url, "m", max_retries=0)
    await completer.check()
    settings: dict[str, Any] = {"multi_turn": True, "max_turns": 6, "max_tokens": MAX_TOKENS}
    bench = Bench(folder, completer, StandInPool(), **(settings | config))
    await bench.run(1)
    await completer.aclose()
    (episode,) = bench.rows()
    return episode


def said(messages: tuple[Message, ...]) -> Said:
    return [{"role": message.role, "content": message.content} for message in messages]


def assert_every_prompt_can_be_rebuilt(episode: Episode, server: WindowServer) -> None:
    assert [said(prompt_of(episode, turn.index)) for turn in episode.turns] == server.answered


WINDOW = OPENING_WORDS + 2 * TURN_WORDS + MAX_TOKENS


async def test_every_request_fits_by_the_servers_own_count_and_the_trace_says_what_was_sent(tmp_path: Path) -> None:
    async with serving(WindowServer(WINDOW, ANSWER)) as server:
        episode = await run(tmp_path, server)
    assert (episode.stop_reason, len(episode.turns)) == (StopReason.MAX_TURNS, 6)
    assert server.refused == []
    assert all(server.tokens(one) + MAX_TOKENS <= WINDOW for one in server.answered)
    assert len(episode.messages) == 2 + 6 + 5, "the trace keeps the whole conversation"
    assert [said(episode.messages[: 2 + 2 * i]) == one for i, one in enumerate(server.answered)][:2] == [True, True]
    assert said(episode.messages[:12]) != server.answered[-1]
    assert THOUGHTS in server.answered[1][2]["content"]
    assert THOUGHTS not in server.answered[-1][2]["content"]
    assert all(one[:2] == server.answered[0] for one in server.answered)
    assert_every_prompt_can_be_rebuilt(episode, server)


async def test_without_a_route_that_counts_an_estimate_keeps_every_request_within_the_window(tmp_path: Path) -> None:
    window = 8000
    async with serving(WindowServer(window, ANSWER, counts=False)) as server:
        episode = await run(tmp_path, server)
    assert (episode.stop_reason, len(episode.turns)) == (StopReason.MAX_TURNS, 6)
    assert server.refused == []
    assert len(server.counted) == 1, "a route that is not there is asked for once"
    prompts = [prompt_of(episode, turn.index) for turn in episode.turns]
    assert all(estimated_tokens(one) + MAX_TOKENS <= window for one in prompts)
    assert len(prompts[-1]) < len(episode.messages) - 1 or THOUGHTS not in prompts[-1][2].content
    assert_every_prompt_can_be_rebuilt(episode, server)


async def test_where_nobody_tells_the_window_a_refusal_leads_to_a_shorter_prompt(tmp_path: Path) -> None:
    async with serving(WindowServer(WINDOW, ANSWER, tells_window=False)) as server:
        episode = await run(tmp_path, server)
    assert (episode.stop_reason, len(episode.turns)) == (StopReason.MAX_TURNS, 6)
    assert server.refused
    assert server.counted == []
    assert_every_prompt_can_be_rebuilt(episode, server)


async def test_the_window_given_by_flag_counts_where_the_server_tells_none(tmp_path: Path) -> None:
    async with serving(WindowServer(10**6, ANSWER, tells_window=False)) as server:
        episode = await run(tmp_path, server, context=WINDOW)
    assert len(episode.turns) == 6
    assert all(server.tokens(one) + MAX_TOKENS <= WINDOW for one in server.answered)


async def test_a_window_with_room_for_everything_costs_no_count(tmp_path: Path) -> None:
    async with serving(WindowServer(10**6, ANSWER)) as server:
        episode = await run(tmp_path, server)
    assert server.counted == []
    assert said(episode.messages[:12]) == server.answered[-1]


@pytest.mark.parametrize("counts", [True, False])
async def test_a_prompt_that_cannot_be_made_to_fit_ends_the_episode_and_is_not_sent(
    tmp_path: Path, counts: bool
) -> None:
    async with serving(WindowServer(MAX_TOKENS + 50, ANSWER, counts=counts)) as server:
        episode = await run(tmp_path, server)
    assert (episode.stop_reason, episode.turns) == (StopReason.CONTEXT, ())
    assert server.answered == server.refused == []
    assert episode.error is not None
    assert "lower --max-tokens, or use --prompt terse" in episode.error


async def test_a_conversation_that_outgrows_the_window_keeps_its_turns(tmp_path: Path) -> None:
    code = BAD.replace("return None", "return None" + "".join(f"\n    # note {i}" for i in range(400)))
    window = OPENING_WORDS + 700 + MAX_TOKENS
    async with serving(WindowServer(window, code)) as server:
        episode = await run(tmp_path, server)
    assert episode.stop_reason is StopReason.CONTEXT
    assert 0 < len(episode.turns) < 6
    assert episode.best_turn == 0
    assert server.refused == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"context": 2000, "max_tokens": 10}, "--context: 2000 is more than the 1000 tokens that m is served with"),
        ({"context": 500, "max_tokens": 600}, "--max-tokens: 600 does not fit m, whose window is 500 tokens"),
        ({"max_tokens": 1000}, "--max-tokens: 1000 does not fit m, whose window is 1000 tokens"),
    ],
)
async def test_a_window_that_cannot_be_kept_is_refused_before_the_run(
    tmp_path: Path, flags: dict[str, int], said: str
) -> None:
    async with serving(WindowServer(1000, ANSWER)) as server:
        config = RunConfig(
            tasks=("builtin:3",), vllm_url=server.url, output=str(tmp_path / "out"), dry_run=True, **flags
        )
        with pytest.raises(ConfigError, match=said):
            await preflight(config, on_skip=pytest.fail)
