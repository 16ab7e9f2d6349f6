"""A kernel that PyTorch's compiler wrote is right, as an answer, under the real verifier."""

from __future__ import annotations

import json
from pathlib import Path

from kb_ray.extract import extract
from kb_ray.records import Candidate, Completion, Status
from kb_ray.tasks.rows import row_task
from kb_ray.training.pairs import Pairs
from tests.fixtures_bench import Verify
from tests.unit.training.compiled import ROW


def test_what_is_learned_from_a_compilers_kernel_passes(verify: Verify, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    (dialogue,) = Pairs(f"file:{tmp_path / 'rows.jsonl'}")
    found = extract(Completion(text=dialogue.messages[-1]["content"], finish_reason="stop", model="m"))
    assert isinstance(found, Candidate)
    task = row_task(ROW, code_column="python_code", source="file", default_name="blend", init_convention="args_kwargs")
    verdict = verify(found.code, task)
    assert verdict.status is Status.OK, verdict.error
