"""`python -m kb_ray.bench --ray`: the pool's processes import nothing that lies beside the candidates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kb_ray import env_vars
from tests.fixtures_bench import ADD_RELU, KERNEL

LATE = ("pydantic", "annotated_types", "pyseccomp")
"""Modules that processes of Ray's have not imported before they serve a job."""


def test_no_file_beside_a_candidate_is_taken_for_a_module(ray_cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "candidates"
    folder.mkdir()
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "ref.py").write_text(ADD_RELU.reference_code)
    for name in LATE:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__)\n")
    shapes = json.dumps({name: spec.model_dump() for name, spec in (ADD_RELU.input_shapes or {}).items()})
    command = [sys.executable, "-m", "kb_ray.bench", "kernel.py", "--reference", "ref.py", "--input-shapes", shapes]
    environment = os.environ | {env_vars.RAY_ADDRESS: ray_cluster, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [*command, "--n-correctness", "1", "--ray"], cwd=folder, env=environment, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    assert (done.returncode, done.stdout[:4]) == (0, "ok: "), done.stdout + done.stderr
