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

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kb_ray"
DATA = (PACKAGE / "tasks" / "builtin", PACKAGE / "model" / "script")
"""Programs that are read as text, not parts of kb_ray."""
MAX_LINES = 300
HEAVY = ("torch", "triton", "vllm", "transformers", "datasets", "ray.serve.llm", "sentence_transformers", "faiss")

PURE = ("records", "errors", "categories")
ALLOWED: dict[str, tuple[str, ...]] = {
    "statuses": (),
    "records": ("statuses", "retrieved"),
    "retrieved": (),
    "likeness": (),
    "errors": (),
    "env_vars": (),
    "process_identity": (),
    "categories": ("records",),
    "tasks": (*PURE, "tasks", "env_vars"),
    "exiting": (),
    "tasks.__main__": (*PURE, "tasks", "env_vars", "exiting", "bench.api", "bench.inspect"),
    "prompts": (*PURE, "prompts"),
    "extract": (*PURE, "extract", "extraction"),
    "extraction": (*PURE, "extraction"),
    "refine": (*PURE, "extract", "prompts"),
    "bench.protocol": ("records",),
    "bench.child": (*PURE, "bench.child", "bench.protocol", "bench.sandbox", "bench.sweep", "tasks.quality"),
    "bench": (*PURE, "bench", "process_identity"),
    "bench.__main__": (*PURE, "bench", "exiting"),
    "bench.access": (*PURE, "env_vars"),
    **dict.fromkeys(("bench.fair", "bench.retrying", "bench.dispatch", "bench.scaling", "bench.gpu_use"), ()),
    "bench.admission": ("bench.fair",),
    "bench.door": ("bench.access",),
    "bench.exposition": PURE,
    "bench.client": (*PURE, "bench.api", "bench.fair", "bench.retrying", "env_vars"),
    "bench.placement": PURE,
    "bench.site": ("records",),
    "bench.neighbours": ("records",),
    "bench.recheck": (*PURE, "bench", "refine", "traces"),
    "bench.api": (*PURE, "bench", "tasks.program"),
    "model": (*PURE, "model", "extract", "extraction", "checkpoints", "local_checkpoints"),
    "model.smollm2": (*PURE, "model", "exiting"),
    "model.in_process": (
        *PURE, "model", "extract", "extraction", "checkpoints", "local_checkpoints", "base_models", "learn.network",
    ),
    "base_models": (),
    "checkpoints": (*PURE, "base_models", "traces"),
    "local_checkpoints": (*PURE, "checkpoints", "traces.store"),
    "learn": (*PURE, "learn", "score"),
    "learn.generating": ("learn.batching", "learn.samples", "model.decoding", "model.drawing"),
    "learn.served": (*PURE, "learn", "model.tokens_http"),
    "learn.sft": ("learn.samples", "records"),
    "training": (*PURE, "checkpoints", "exporting", "learn", "retrieve.leaking", "traces", "training"),
    "training.settings": (*PURE, "base_models", "config", "learn.objective", "learn.sft", "training.other_names"),
    "training.other_names": ("config",),
    "training.whole_settings": ("config", "score", "training.other_names", "training.rl_settings", "training.settings"),
    "training.pairs": (
        *PURE, "bench.static", "extract", "prompts", "tasks", "training.dialogues", "training.inductor",
    ),
    "training.inductor": (),
    "training.serving": (*PURE, "learn", "model.openai_http", "model.tokens_http", "traces", "training"),
    "training.mailbox": (),
    "training.placing": PURE,
    "training.starting": (
        *PURE, "checkpoints", "learn.objective", "traces.store", "training.bases", "training.origins",
        "training.settings",
    ),
    "training.bases": ("base_models", "checkpoints", "errors"),
    "training.tries": ("learn.rollouts", "records", "refine", "traces.resume", "traces.run", "traces.store"),
    "training.rl_settings": (*PURE, "bench.protocol", "config", "learn", "score", "training.settings"),
    "training.rl_run": (*PURE, "learn", "prompts", "refine", "tasks", "traces", "training"),
    "training.openings": (*PURE, "bench.site", "prompts", "raicl", "training.rl_settings"),
    "training.rl_command": (
        *PURE, "bench.pool", "bench.protocol", "cluster", "flagging", "learn", "preflight", "traces", "training",
    ),
    "training.sft_run": (*PURE, "cluster", "exiting", "exporting", "learn", "tasks", "traces", "training"),
    "learn.stepping": ("errors", "learn.objective", "learn.samples"),
    "learn.peers": (),
    "learn.tinker": (*PURE, "env_vars", "learn"),
    "learn.rollouts": (*PURE, "extract", "learn", "refine", "score"),
    "learn.grpo": (*PURE, "learn", "refine", "score"),
    "learn.returns": (),
    "learn.advantage": (),
    "learn.batching": (),
    "learn.objective": ("records",),
    "learn.loss": ("learn.objective",),
    "learn.samples": ("learn.advantage", "learn.returns"),
    "learn.curriculum": ("records",),
    "traces": (*PURE, "process_identity", "traces"),
    "traces.shards": ("records",),
    "traces.lease": (*PURE, "process_identity", "traces.shards", "traces.store"),
    "wording": (),
    "verifying": (*PURE, "bench.protocol", "prompts", "refine", "traces", "verifying", "wording"),
    "verifying.findings": ("records",),
    "verifying.episode": (
        "prompts", "records", "refine", "traces.run", "traces.schema", "verifying.findings", "verifying.judging",
        "verifying.rules",
    ),
    "verifying.judging": ("bench.protocol", "records", "traces.run", "verifying.findings", "verifying.rules"),
    "verifying.rules": ("records", "refine", "traces.run", "wording"),
    "verifying.accounting": ("records", "traces.plans", "traces.shards", "traces.starts", "verifying.findings"),
    "reporting": (*PURE, "reporting", "score", "statuses", "traces"),
    "config": (*PURE, "bench.protocol", "traces.shards"),
    "config_sources": (*PURE, "config", "env_vars", "plain_yaml", "setting_names"),
    "setting_names": ("config", "errors"),
    "plain_yaml": (),
    "cluster": (*PURE, "env_vars"),
    "tally": (*PURE, "watching.meter"),
    "logs": ("env_vars",),
    "watching": (*PURE, "logs", "process_identity", "score", "statuses", "tally", "traces", "watching"),
    "watching.catalogue": ("records", "statuses"),
    "watching.meter": ("records", "watching.catalogue"),
    "watching.ray_meter": ("watching.catalogue",),
    "retrieve": (*PURE, "retrieve", "retrieved", "tasks", "traces", "bench.protocol"),
    "retrieve.program": ("likeness",),
    "retrieve.choosing": ("retrieve.computed", "retrieve.program"),
    "retrieve.operations": (),
    "retrieve.parts": (),
    "retrieve.noting": ("retrieve.operations", "retrieve.parts"),
    "retrieve.known_calls": ("retrieve.noting", "retrieve.operations", "retrieve.parts"),
    "retrieve.calling": ("retrieve.known_calls", "retrieve.operations", "retrieve.parts"),
    "retrieve.walking": ("retrieve.calling", "retrieve.operations", "retrieve.parts"),
    "retrieve.computed": ("retrieve.parts", "retrieve.walking", "tasks.entry_point"),
    "retrieve.leaking": ("retrieve.choosing", "retrieve.computed", "retrieve.program"),
    "retrieve.exact": (),
    "retrieve.embedding": (*PURE, "retrieve.program"),
    "retrieve.fleet": (*PURE, "retrieve.embedding"),
    "raicl": (*PURE, "config", "prompts", "retrieve"),
    "places": (),
    "serve_address": ("errors",),
    "serve_fields": ("env_vars",),
    "window": (*PURE, "config", "model.completer", "prompts"),
    "asking": (*PURE, "config", "model.completer", "prompts", "refine", "tally", "places", "traces.run", "window"),
    "score": (*PURE, "statuses", "score", "tasks.quality"),
    "drive": (
        *PURE, "asking", "config", "logs", "bench.protocol", "model.completer", "prompts", "refine", "tally",
        "traces.run", "watching.lines",
    ),
}  # fmt: skip
"""Part -> what of kb_ray it may import. The most specific name counts. What is not here is an entry point or
serves several of them: it may import anything, and nothing above may import it."""

ONLY_IN: dict[str, tuple[str, ...]] = {
    "torch": (
        "bench.child",
        "model.smollm2",
        "model.in_process",
        "model.weights",
        "model.decoding",
        "model.drawing",
        "model.recording",
        "learn.loss",
        "learn.learner",
        "learn.memory",
        "learn.network",
        "learn.generating",
        "learn.peers",
        "training.keeping",
        "training.group",
    ),
    "triton": ("bench.child",),
    "datasets": ("tasks",),
    "transformers": ("model.smollm2", "model.weights", "model.decoding", "learn.network"),
    "peft": ("model.weights", "learn.network"),
    "tinker": ("learn.tinker", "learn.tinker_sampler"),
    "ray": (
        "compact",
        "bench.actor",
        "bench.api",
        "bench.front",
        "bench.pool",
        "bench.watch",
        "bench.worker",
        "bench_nodes",
        "cluster",
        "retrieve.fleet",
        "serve",
        "serve_fields",
        "serve_file",
        "serve_logs",
        "training.group",
        "training.learners",
        "watching.ray_meter",
    ),
    "boto3": ("traces.s3",),
    "bm25s": ("retrieve.lexical",),
    "faiss": ("retrieve.ann",),
    "sentence_transformers": ("retrieve.embedding",),
    "fastapi": ("bench.door", "bench.service"),
    "prometheus_client": ("bench.exposition",),
    "botocore": ("traces.s3",),
    "huggingface_hub": ("exporting.hub", "tasks.hub"),
    "rich": ("observe",),
    "matplotlib": ("reporting.drawing",),
}
"""Distribution -> the only parts that import it, at whatever depth."""


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
