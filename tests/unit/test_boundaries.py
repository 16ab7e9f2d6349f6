"""The architecture as rules: who may import whom, how long files are, what a driver must not load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.unit.import_rules import ALLOWED, ONLY_IN

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kb_ray"
DATA = (PACKAGE / "tasks" / "builtin", PACKAGE / "model" / "script")
"""Programs that are read as text, not parts of kb_ray."""
MAX_LINES = 300
HEAVY = ("torch", "triton", "vllm", "transformers", "datasets", "ray.serve.llm", "sentence_transformers", "faiss")


def sources() -> list[Path]:
    """Every Python file of the package that is code of ours."""
    return sorted(path for path in PACKAGE.rglob("*.py") if not any(path.is_relative_to(folder) for folder in DATA))


def part_of(path: Path) -> str:
    """`bench.child.wire` for kb_ray/bench/child/wire.py, `bench` for a package's own file."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports(path: Path) -> set[str]:
    """Dotted names that the file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, parts: tuple[str, ...]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def rule_for(part: str) -> tuple[str, ...] | None:
    known = [name for name in ALLOWED if within(part, (name,))]
    return ALLOWED[max(known, key=len)] if known else None


@pytest.mark.parametrize("path", sources(), ids=part_of)
def test_imports_follow_the_arrows(path: Path) -> None:
    allowed = rule_for(part_of(path))
    own = {name.removeprefix("kb_ray.") for name in imports(path) if name.startswith("kb_ray.")}
    if allowed is not None:
        assert {name for name in own if not within(name, allowed)} == set()


def test_every_rule_is_about_something_that_exists() -> None:
    parts = tuple(part_of(path) for path in sources())
    named = {*ALLOWED, *(name for names in ALLOWED.values() for name in names)}
    named |= {name for names in ONLY_IN.values() for name in names}
    assert {name for name in named if not any(within(part, (name,)) for part in parts)} == set()


@pytest.mark.parametrize("distribution", ONLY_IN)
def test_a_heavy_or_effectful_library_stays_where_it_belongs(distribution: str) -> None:
    users = {part_of(path) for path in sources() if within_any(imports(path), distribution)}
    assert {user for user in users if not within(user, ONLY_IN[distribution])} == set()


def within_any(names: set[str], distribution: str) -> bool:
    return any(within(name, (distribution,)) for name in names)


def test_the_driver_loads_nothing_heavy() -> None:
    code = f"import sys, kb_ray.generate; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []


def test_a_bench_actor_loads_nothing_heavy() -> None:
    code = f"import sys, kb_ray.bench.actor; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []


def all_files() -> list[Path]:
    found = [*sources(), *(ROOT / "deployments").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    return sorted(found)


def test_no_two_test_files_have_one_name() -> None:
    """Where folders are no packages, pytest takes the second for the first and collects nothing."""
    plain = [path for path in (ROOT / "tests").rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    names = Counter(path.name for path in plain)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", all_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_says_what_it_is_and_has_a_telling_name(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= MAX_LINES
    words = len((ast.get_docstring(ast.parse(text)) or "").split())
    assert words >= 5 or not text.strip(), "no docstring that says what the file does"
    assert path.stem not in {"utils", "util", "helpers", "common", "misc", "manager", "handler"}
    assert not re.search(r"^class \w*(Manager|Handler)\b", text, re.MULTILINE)
