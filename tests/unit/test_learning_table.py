"""The learning experiment's files and its table, from episodes whose figures can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.learning import material, splits, table
from kb_ray.model.script_file import read_script
from kb_ray.records import Episode, Status, StopReason, Verdict
from kb_ray.score.outcomes import Outcome, outcomes
from kb_ray.tasks.sources import entries
from tests.unit.score.episodes import bad, episode, ok


def of(split: str, name: str, *verdicts: Verdict, stop: StopReason = StopReason.MAX_TURNS) -> Episode:
    made = episode(name, *verdicts, stop=stop)
    return made.model_copy(update={"task": made.task.model_copy(update={"task_id": f"{split}/{name}"})})


def row(lines: list[str], number: int) -> dict[str, str]:
    cells = [cell.strip() for cell in lines[2 + number].strip("|").split("|")]
    return dict(zip(table.COLUMNS, cells, strict=True))


def found(*episodes: Episode) -> list[Outcome]:
    return list(outcomes(episodes))


def test_figures_are_those_worked_out_by_hand() -> None:
    sft = found(of("slow", "a", ok(1.0)), of("slow", "b", ok(4.0)), of("slow", "c", bad()), of("longer", "d", bad()))
    grpo = found(
        of("slow", "a", bad(), ok(2.0)),
        of("slow", "b", ok(8.0)),
        of("slow", "c", bad(Status.HACK), ok(9.0)),
        of("slow", "e", stop=StopReason.INFRA_ERROR),
    )
    lines = table.table({"sft": sft, "grpo": grpo}).splitlines()
    assert len(lines) == 2 + 3
    first, second = row(lines, 1), row(lines, 2)
    assert (row(lines, 0)["split"], row(lines, 0)["first answer right"].split(" ")[0]) == ("longer", "0.0")
    assert (first["model"], first["split"], first["n"], first["mended"]) == ("sft", "slow", "3", "0")
    assert first["first answer right"].startswith("66.7 % (")
    assert first["speedup, geometric mean"].startswith("2.00 (")
    assert (second["n"], second["mended"], second["hacks"]) == ("3", "2", "1")
    assert second["first answer right"].startswith("33.3 % (")
    assert second["right by the last turn"].startswith("100.0 % (")
    assert second["speedup, geometric mean"].startswith("5.24 ("), "the cube root of 144"
    assert second["of the same programs, times the first model's"].startswith("2.00 ("), "c was not right before"


def test_tasks_of_each_split_and_an_answer_for_each_program_shown(tmp_path: Path) -> None:
    material.main([str(tmp_path), "--traces", "5"])
    counts = {split: len(entries(f"file:{tmp_path / split}.jsonl")) for split in ("train", "shown", *splits.SPLITS)}
    assert counts == {"train": splits.TRAINED, "shown": 5} | dict.fromkeys(splits.SPLITS, splits.PER_SPLIT)
    shown = [entry.make() for entry in entries(f"file:{tmp_path / 'shown'}.jsonl")]
    script = read_script(str(tmp_path / "answers.jsonl"))
    assert [line.task for line in script] == [task.task_id for task in shown]
    assert all(task.task_id.startswith("train/") for task in shown)
    held = {json.loads(line)["reference_code"] for line in (tmp_path / "seen.jsonl").read_text().splitlines()}
    assert held.isdisjoint(task.reference_code for task in shown)
