"""A prompt names what the machines have that verify, not what the driver's has: on a real cluster, joined."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.fixtures_head import Head, clean_environment

ROOT = Path(__file__).parents[2]
ASK = """
import asyncio, sys
from kb_ray.bench import site
from kb_ray.config import RunConfig
from kb_ray.preflight import preflight

site.installed_version = lambda package: "the driver's own"
config = RunConfig(tasks=("builtin:3",), model="scripted", output=sys.argv[2], ray_address=sys.argv[1], device="cpu")
found = asyncio.run(preflight(config, on_skip=print)).prompt
print(found.torch, found.triton, found.gpu)
"""


def test_the_versions_in_a_prompt_are_those_of_a_bench_node(head: Head, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, head.address, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=clean_environment(head.home),
        timeout=120,
    )
    assert done.stdout.split() == [version("torch"), version("triton"), "None"], done.stderr
