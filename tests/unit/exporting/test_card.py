"""The card: its head is YAML that the hub reads, its body says what was done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kb_ray.errors import ConfigError
from kb_ray.exporting.making import make
from kb_ray.exporting.options import ExportOptions, Filters
from kb_ray.records import Episode, StopReason
from kb_ray.traces.reading import survey
from kb_ray.traces.run import RunInfo
from tests.unit.exporting.stories import store_of, story, task, with_examples

COMMAND = "python -m kb_ray.export store --view sft --min-speedup 1"
TOLD = [
    story("wrong", "fast", of=task("a", source="kernelbench", number=1)),
    story("twice", of=task("b", source="kernelbench", level=2, number=2)),
    story("slow", of=task("c", source="kernelbench", number=3)),
]


def card_of(folder: Path, *episodes: Episode, **options: Any) -> tuple[dict[str, Any], str]:
    chosen = ExportOptions(**({"view": "sft"} | options))
    made = make(survey(store_of(folder / "store", *episodes)), chosen, folder / "out", command=COMMAND)
    _, head, body = (made.folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), body


def test_head_and_body_say_counts_command_filters_and_licence(tmp_path: Path) -> None:
    head, body = card_of(tmp_path, *TOLD, filters=Filters(min_speedup=1.0))
    assert head["license"] == "mit"
    assert head["size_categories"] == ["n<1K"]
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*.parquet"}]
    assert COMMAND in body
    assert "2 rows of 2 tasks, view `sft`" in body
    assert "from 3 episodes" in body
    assert "Left out: --min-speedup 1 removed 1 answer." in body
    assert "| kernelbench | 2 |" in body
    assert "| 1 | 1 |" in body
    assert "Answers by `tiny`." in body


def test_sources_of_several_licences_are_other_and_each_is_named(tmp_path: Path) -> None:
    book = task("1174", source="kernelbook")
    head, body = card_of(tmp_path, TOLD[0], story("fast", of=book))
    assert head["license"] == "other"
    assert "| kernelbench | mit |" in body
    assert "| kernelbook | unknown: each program has the licence of its repository" in body


@pytest.mark.parametrize("view", ["rl", "preference", "raw", "seed1"])
def test_every_view_has_a_card_with_its_counts(tmp_path: Path, view: str) -> None:
    head, body = card_of(tmp_path, *TOLD, view=view)
    assert f"view `{view}`" in body
    assert "| kernelbench |" in body
    assert head["tags"][-1] == f"kb-ray-{view}"


def test_a_filter_that_leaves_nothing_is_named_with_what_it_took_and_nothing_is_written(tmp_path: Path) -> None:
    filters = Filters(source=frozenset({"kernelbench"}), min_speedup=10.0)
    with pytest.raises(ConfigError) as refused:
        card_of(tmp_path, *TOLD, story("fast"), filters=filters)
    assert str(refused.value).endswith(
        "nothing is left for view sft of 4 episodes: --source kernelbench removed 1 episode, "
        "--min-speedup 10 removed 3 answers"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_damaged_files_that_were_left_out_are_in_the_card(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", *TOLD, part_rows=1)
    broken = sorted((tmp_path / "store" / "parts").iterdir())[0]
    broken.write_bytes(b"x")
    made = make(survey(store, skip_corrupt=True), ExportOptions("sft"), tmp_path / "out", command=COMMAND)
    assert f"Not read, since it is damaged: `parts/{broken.name}`" in (made.folder / "README.md").read_text()


@pytest.mark.parametrize("view", ["raw", "seed1"])
def test_samples_of_one_task_are_one_task(tmp_path: Path, view: str) -> None:
    relu = task("19_ReLU", source="kernelbench", number=19)
    told = [story("fast", of=relu, sample=sample) for sample in range(3)]
    _, body = card_of(tmp_path, *told, story("blank", of=task("exp")), view=view)
    assert "4 rows of 2 tasks" in body
    assert "| kernelbench | 3 |" in body


@pytest.mark.parametrize("view", ["sft", "rl", "preference", "raw", "seed1"])
def test_the_corpora_of_shown_examples_are_named_with_their_licences(tmp_path: Path, view: str) -> None:
    told = [with_examples(story("wrong", "fast", of=task("a", source="kernelbench", number=1)), "sakana/1/19_5")]
    head, body = card_of(tmp_path / "unknown", *told, view=view)
    assert head["license"] == "other"
    assert "## Retrieved examples" in body
    assert "| sakana | " in body
    assert "| unknown: CUDA kernels and programs of SakanaAI/AI-CUDA-Engineer-Archive" in body
    head, body = card_of(tmp_path / "known", *told, view=view, licenses={"sakana": "mit"})
    assert head["license"] == "mit"
    assert "Retrieved examples" not in card_of(tmp_path / "none", *TOLD, view=view)[1]


def test_a_training_runs_store_names_the_model_that_was_trained(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", story(stop=StopReason.CONTEXT))
    info = RunInfo(
        run_id="r", fingerprint="f", identity={"model_name": "Qwen/Q", "command": "grpo"}, config={}, versions={},
        created_at="t",
    )  # fmt: skip
    store.put_if_absent("run.json", info.model_dump_json().encode())
    made = make(survey(store), ExportOptions("raw"), tmp_path / "out", command=COMMAND)
    assert "Answers by `Qwen/Q`." in (made.folder / "README.md").read_text()
