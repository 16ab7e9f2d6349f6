"""A real model's answers go the whole way: Serve, HTTP, extraction, evaluation, feedback, trace."""

from __future__ import annotations

from pathlib import Path

from kb_ray.records import Status, StopReason
from kb_ray.traces.store import open_store
from kb_ray.traces.views import episodes
from tests.fixtures_run import Command, make_workload

MODEL = "smollm2-135m-instruct"


def test_answers_of_a_real_model_become_verdicts_and_rows(smollm2_url: str, command: Command, tmp_path: Path) -> None:
    workload, output = make_workload(tmp_path, 3), str(tmp_path / "out")
    code, out = command.run(
        [
            "--tasks", f"folder:{workload.tasks}", "--model", MODEL, "--vllm-url", smollm2_url, "--multi-turn",
            "--max-turns", "2", "--prompt", "terse", "--max-tokens", "256", "--temperature", "0.2", "--seed", "3",
            "--bench-workers", "1", "--n-correctness", "2", "--output", output,
        ],
        timeout_s=400,
    )  # fmt: skip
    assert code == 0, out
    kept = list(episodes(open_store(output)))
    assert {episode.task.task_id for episode in kept} == set(workload.task_ids)
    turns = [turn for episode in kept for turn in episode.turns]
    assert len(turns) >= 4
    for turn in turns:
        assert turn.completion.model == MODEL
        assert turn.completion.usage.completion_tokens > 0
        assert turn.completion.latency_s > 0
        assert turn.verdict.status is not Status.INFRA_ERROR
    for episode in kept:
        assert episode.stop_reason in (StopReason.MAX_TURNS, StopReason.SUCCESS_UNTIMED)
        first, last = episode.turns[0], episode.turns[-1]
        assert first.feedback_given == episode.messages[3].content
        assert last.feedback_given is None
    # Code was found in some answer and went through the verifier, whatever it was worth.
    assert any(turn.triton_code and turn.verdict.verifier_version for turn in turns), [t.completion.text for t in turns]
