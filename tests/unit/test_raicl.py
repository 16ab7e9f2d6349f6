"""Openings with examples: what template and index must be, what identifies them, how much of a window they take."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic_pairs import pairs
from kb_ray.config import RunConfig
from kb_ray.errors import ConfigError
from kb_ray.prompts.budget import estimated_tokens
from kb_ray.prompts.opening import PromptSetting, opening_messages
from kb_ray.raicl import Examples, ExampleSettings, examples_for, open_examples, opening
from kb_ray.retrieve.search import Limits, Search
from kb_ray.tasks.folder import builtin_entries
from kb_ray.traces.store import open_store
from tests.unit.retrieve.material import lexical_build, lexical_index, rows_of, write_pairs

PROMPT = PromptSetting(template="raicl", device="cpu")
TASK = builtin_entries(None)[0].make()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("raicl")
    lexical_index(folder)
    return str(folder / "index")


def config(index: str | None, **fields: object) -> RunConfig:
    return RunConfig.model_validate({"prompt": "raicl", "rag_index": index, **fields})


def test_the_prompt_shows_the_examples_that_the_record_names(index: str) -> None:
    examples = Examples(ExampleSettings(index=index, count=2))
    messages, retrieved = examples.opening(TASK, PROMPT)
    assert len(retrieved.examples) == 2
    assert messages[-1].content.count("### Example ") == 2
    assert messages[-1].content.index("### Example 1") > messages[-1].content.index(TASK.reference_code.strip())


def test_further_samples_of_a_task_get_the_same_opening(index: str) -> None:
    examples = Examples(ExampleSettings(index=index))
    assert examples.opening(TASK, PROMPT) is examples.opening(TASK, PROMPT)
    assert examples.opening(TASK, PROMPT) == Examples(ExampleSettings(index=index)).opening(TASK, PROMPT)


def test_each_of_many_tasks_is_looked_up_once_however_often_a_run_comes_back(
    index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, looked, asked = Examples(ExampleSettings(index=index)), list[str | None](), Search.rows

    def rows(self: Search, program: str, limits: Limits, task_id: str | None, entry_point: str | None) -> Any:
        looked.append(task_id)
        return asked(self, program, limits, task_id, entry_point)

    monkeypatch.setattr(Search, "rows", rows)
    tasks = [TASK.model_copy(update={"task_id": f"t/{number}"}) for number in range(300)]
    first = [examples.opening(task, PROMPT) for task in tasks]
    assert [examples.opening(task, PROMPT) for task in tasks] == first
    assert looked == [task.task_id for task in tasks]


def test_what_changes_prompts_changes_the_identity_and_the_place_does_not(index: str, tmp_path: Path) -> None:
    moved = shutil.copytree(index, tmp_path / "moved")
    lexical_index(tmp_path / "other", seed=5)
    first = Examples(ExampleSettings(index=index)).identity
    assert Examples(ExampleSettings(index=str(moved))).identity == first
    others = [
        ExampleSettings(index=str(tmp_path / "other" / "index")), ExampleSettings(index=index, count=2),
        ExampleSettings(index=index, tokens=999), ExampleSettings(index=index, overlap=0.5),
        ExampleSettings(index=index, cuda=True), ExampleSettings(index=index, similarity=0.9),
    ]  # fmt: skip
    assert all(Examples(settings).identity != first for settings in others)


WITHOUT = estimated_tokens(opening_messages(TASK, PROMPT, "None was found for this program."))


@pytest.mark.parametrize("left", [-500, 0, 20, 200, 600, 1500, WITHOUT, 3 * WITHOUT, 10 * WITHOUT])
def test_prompt_and_examples_fit_beside_the_answer_and_examples_take_half_at_most(index: str, left: int) -> None:
    """`left`: tokens of the window that neither the answer nor template and task take."""
    limited = open_examples(config(index, max_tokens=1000, raicl_k=8), window=1000 + WITHOUT + left)
    assert limited is not None
    messages, retrieved = limited.opening(TASK, PROMPT)
    used = estimated_tokens(messages)
    assert used == WITHOUT if not retrieved.examples else used <= WITHOUT + left
    assert used - WITHOUT <= max(0, (WITHOUT + left) // 2)
    assert bool(retrieved.examples) == (left >= 1500)
    assert (retrieved.note is None) == (len(retrieved.examples) == 8)


def test_a_window_without_room_leaves_the_prompt_without_examples(index: str) -> None:
    none = open_examples(config(index, max_tokens=1000), window=1001)
    assert none is not None
    messages, retrieved = none.opening(TASK, PROMPT)
    assert retrieved.examples == ()
    assert "None was found for this program." in messages[-1].content


def test_template_and_index_must_go_together(index: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--prompt raicl: it shows examples: give the index with --rag-index"):
        open_examples(config(None), None)
    with pytest.raises(ConfigError, match=r"the template terse has no \$examples"):
        open_examples(config(index, prompt="terse"), None)
    assert open_examples(config(None, prompt="terse"), None) is None
    own = tmp_path / "own.md"
    own.write_text("<!-- user -->\n$reference\n${examples}\n")
    with pytest.raises(ConfigError, match=r"--prompt-option .*own\.md: it shows examples.*--rag-index-path"):
        examples_for(str(own), None, prompt="--prompt-option", index="--rag-index-path")
    found = open_examples(config(index, prompt=str(own)), None)
    assert found is not None
    messages, _ = found.opening(TASK, PROMPT.model_copy(update={"template": str(own)}))
    assert "### Example 3" in messages[0].content


def test_without_an_index_an_opening_is_the_templates(index: str) -> None:
    plain = PROMPT.model_copy(update={"template": "terse"})
    assert opening(None, TASK, plain) == (opening_messages(TASK, plain), None)


def test_an_index_without_anything_to_show_says_so_and_one_with_enough_does_not(index: str, tmp_path: Path) -> None:
    cuda = [pair._replace(triton_code="__global__ void k() {}") for pair in pairs(20, 1)]
    path = write_pairs(tmp_path / "c.jsonl", cuda, "cuda_code")
    lexical_build(open_store(str(tmp_path / "index")), rows_of(f"file:{path}")).run()
    examples = Examples(ExampleSettings(index=str(tmp_path / "index")))
    assert examples.shortage is None
    for number in range(4):
        examples.opening(TASK.model_copy(update={"task_id": f"t/{number}"}), PROMPT)
    told = (
        "4 of 4 tasks looked up got fewer than 3 (4 none): 4 because the index has no more programs that are not CUDA"
    )
    assert examples.shortage == told
    assert examples.summary.endswith(f"; {told}")
    enough = Examples(ExampleSettings(index=index))
    enough.opening(TASK, PROMPT)
    assert (enough.shortage, "fewer" in enough.summary) == (None, False)


def test_tasks_whose_examples_do_not_fit_are_told_with_the_reason(index: str) -> None:
    examples = Examples(ExampleSettings(index=index, tokens=800, count=8))
    _, retrieved = examples.opening(TASK, PROMPT)
    assert 0 < len(retrieved.examples) < 8
    assert examples.shortage == (
        "1 of 1 tasks looked up got fewer than 8: 1 because no more fit into the tokens left for them"
    )


def test_a_model_for_an_index_of_words_is_refused(index: str) -> None:
    with pytest.raises(ConfigError, match=r"--rag-model some/model: index .* is one of words") as caught:
        open_examples(config(index, rag_model="some/model"), None)
    assert "\n" not in str(caught.value)
