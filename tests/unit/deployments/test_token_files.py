"""A file of tokens that was put into the checkout after all goes neither into the repository nor to a cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = ("bench_tokens", ".kb_bench_tokens", "deployments/bench_tokens", ".env")


def test_ray_leaves_them_out_of_the_upload(tmp_path: Path) -> None:
    from ray._private.runtime_env.packaging import _get_excludes

    excludes = yaml.safe_load((ROOT / "jobs" / "runtime_env.yaml").read_text())["excludes"]
    left_out = _get_excludes(tmp_path, excludes)
    assert [name for name in FILES if not left_out(tmp_path / name)] == []
    assert not left_out(tmp_path / "kb_ray" / "bench" / "access.py")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_does_not_see_them(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    asked = ["git", "-C", tmp_path, "check-ignore", *FILES]
    ignored = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    assert ignored == list(FILES)


def test_the_page_puts_them_outside_the_checkout_and_where_the_service_looks() -> None:
    page = (ROOT / "docs" / "reward_functions.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"umask 077; echo .* > (\S+)\)", page)
    ((sent, there),) = re.findall(r"^ray rsync-up ray_cluster\.yaml (\S+) (\S+)$", page, re.MULTILINE)
    assert written == sent
    assert written.startswith("~/")
    both = yaml.safe_load((ROOT / "deployments" / "glm45_air_and_bench.yaml").read_text())
    assert [app["args"].get("token_file") for app in both["applications"]] == [None, there]
