"""What the documents say exists: flags, defaults, commands, files, links, statuses, columns, modules.

Documents are read as Markdown text. Whether an explanation is right is for people to judge.
"""

from __future__ import annotations

import ast
import importlib
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kb_ray.categories import CATEGORY_BY_STATUS
from kb_ray.config import RunConfig
from kb_ray.config_sources import build_parser
from kb_ray.doctor import DoctorConfig
from kb_ray.evaluation.options import EvaluateConfig
from kb_ray.records import Stage, Status, StopReason, validity
from kb_ray.traces.columns import SCHEMA

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
SEEDS = ROOT / "docs" / "seeds.md"
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?![\w-])")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
TOP_FOLDERS = ("kb_ray", "docs", "jobs", "deployments", "tests", "requirements")
# What nobody outside could know or use. In brackets, so that this file does not say it either.
PRIVATE = (r"/wor[k]\b", r"\bissues?\s+#?\d", r"(?<![\w&/])#\d", r"\ba[g]ents?\b(?! training)", r"\b(pypi|npmjs)\.")
OPTIONS = {
    "kb_ray.index": "IndexOptions",
    "kb_ray.compact": "CompactOptions",
    "kb_ray.report": "ReportOptions",
    "kb_ray.status": "StatusOptions",
    "kb_ray.verify": "VerifyOptions",
}
"""Commands whose flags are the fields of a class."""

FIRST_DOCUMENT = (
    *("--vllm-url", "--output", "--kernelbook-samples", "--kernelbench-samples", "--batch-size", "--save-interval"),
    *("--multi-turn", "--max-turns", "correctness", "speedup", "fast_0", "fast_1", "fast_2", "kernel_code"),
    *("benchmark_triton_kernel", "benchmark_kernelbench", "benchmark_batch", "reference_torch_code", "input_shapes"),
    *("n_correctness=5", "n_trials=50", "kernel_name", "triton_kernel_wrapper", "reference_impl", "utilities.py"),
    *("orchestrator.py", "multi_turn_queue.py", "modal_app.py", "dataloader.py", "test_multi_turn.py"),
    *("run_glm45_air.sh", "run_gpt_oss.sh", "serve_qwen3_235b.sh", "multi_turn.md", "reasoning_traces.json"),
    *("GLM-4.5-Air", "GPT-OSS-120B", "Qwen3-235B-A22B", "--gpu-memory-utilization", "--max-model-len"),
)


def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("path", PAGES, ids=name_of)


def blocks(text: str) -> list[tuple[str, str]]:
    """(label, content) of each fenced block."""
    return [(m[2], m[3]) for m in re.finditer(r"^(`{3,})(\w*)\n(.*?)^\1$", text, re.DOTALL | re.MULTILINE)]


def prose(text: str) -> str:
    """The page without fenced blocks."""
    return re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


def tables(text: str) -> Iterator[list[dict[str, str]]]:
    """Each table as its rows, by column heading."""
    for found in re.finditer(r"(?:^\|.*\|\n)+", prose(text), re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in found[0].splitlines()]
        yield [dict(zip(head, row, strict=True)) for row in rows]


@cache
def flags_of(module: str) -> frozenset[str]:
    """Flags of `python -m module`, as its parser or its source declares them."""
    configs = {"kb_ray.generate": RunConfig, "kb_ray.doctor": DoctorConfig, "kb_ray.evaluate": EvaluateConfig}
    if module in configs:
        return _options(build_parser(configs[module], module))
    if module == "kb_ray.train":
        kinds = importlib.import_module(module).COMMANDS.values()
        return frozenset({"--config"}).union(*(_options(build_parser(kind, module)) for kind in kinds))
    if module in OPTIONS:
        fields = getattr(importlib.import_module(module), OPTIONS[module]).model_fields
        return frozenset("--" + name.strip("_").replace("_", "-") for name in fields)
    return frozenset(re.findall(r'"(--[a-z-]+)"', source_of(module).read_text(encoding="utf-8")))


def _options(parser: ArgumentParser) -> frozenset[str]:
    return frozenset(option for action in parser._actions for option in action.option_strings)


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """(module, arguments) of every `python -m kb_ray...` in code, continued lines joined."""
    code = [content.replace("\\\n", " ") for _, content in blocks(text)]
    for line in [*"\n".join(code).splitlines(), *SPAN.findall(prose(text))]:
        for found in re.finditer(r"python -m ((?:kb_ray|deployments)[\w.]*)([^#]*?)(?=python -m|#|$)", line):
            yield found[1].rstrip("."), found[2]


def planned(row: dict[str, str]) -> bool:
    return any("**planned**" in cell for cell in row.values())


def ours(row: dict[str, str]) -> list[str]:
    """Code in those cells of a row of seeds.md that are about this project."""
    cells = [cell for column, cell in row.items() if not column.endswith(" there") and column != "There"]
    return [span for cell in cells for span in SPAN.findall(cell)]


@every_page
def test_every_flag_is_one_of_the_command_it_stands_with(path: Path) -> None:
    for module, arguments in commands(page(path)):
        assert set(FLAG.findall(arguments)) - flags_of(module) == set(), f"{module}{arguments}"


@pytest.mark.parametrize("path", [p for p in PAGES if p != SEEDS], ids=name_of)
def test_a_flag_by_itself_is_one_of_generate(path: Path) -> None:
    own = flags_of("kb_ray.generate")
    alone = [span for span in SPAN.findall(prose(page(path))) if span.startswith("--")]
    elsewhere = {"--rows-per-file", "--list-missing"} if path.name == "traces.md" else set()
    elsewhere |= flags_of("kb_ray.evaluate") if path.name == "metrics.md" else set()
    elsewhere |= flags_of("kb_ray.index") if path.name == "retrieval.md" else set()
    elsewhere |= flags_of("kb_ray.train") if path.name == "learning.md" else set()
    assert {flag for span in alone for flag in FLAG.findall(span)} - own - elsewhere == set()


def test_the_flags_that_seeds_are_mapped_to_exist() -> None:
    own = flags_of("kb_ray.generate")
    named = {
        flag
        for table in tables(page(SEEDS))
        for row in table
        for span in ours(row)
        if span.startswith("--")
        for flag in FLAG.findall(span)
    }
    assert named - own == set()
    assert len(named) > 15


def test_the_defaults_that_seeds_are_mapped_to_are_the_real_ones() -> None:
    helps = {option: a.help or "" for a in build_parser(RunConfig, "x")._actions for option in a.option_strings}
    rows = [row for table in tables(page(SEEDS)) for row in table if "Default here" in row]
    assert len(rows) == 8
    for row in rows:
        assert f"[default: {row['Default here'].strip('`')};" in helps[row["Here"].strip("`")], row


def test_the_defaults_in_the_readme_are_the_real_ones() -> None:
    table = next(t for t in tables(page(ROOT / "README.md")) if list(t[0])[:2] == ["Flag", "Default"])
    for row in table:
        names, given = row["Flag"].replace("`", "").split(", "), row["Default"].replace("`", "").split(", ")
        fields = [RunConfig.model_fields[name.removeprefix("--").replace("-", "_")] for name in names if name not in
                  ("--config", "--set")]  # fmt: skip
        for field, value in zip(fields, given, strict=False):
            shown = "off" if field.default is False else str(field.default)
            assert field.default in (None, ()) or shown == value, row


def test_nothing_of_the_first_document_is_left_out() -> None:
    first = page(SEEDS).partition("\n## 2.")[0]
    assert [name for name in FIRST_DOCUMENT if name not in first] == []


def test_what_is_called_planned_does_not_exist_and_the_rest_does() -> None:
    for row in (row for table in tables(page(SEEDS)) for row in table):
        for cell in row.values():
            present, _, later = cell.partition("**planned**")
            if cell in (row.get("There"), row.get("Value there")):
                continue
            assert [s for s in SPAN.findall(present) if is_path(s) and not (ROOT / s).exists()] == [], row
            assert [s for s in SPAN.findall(later) if is_path(s) and (ROOT / s).exists()] == [], row
        if "State" in row:
            assert re.match(r"here|planned|absent", row["State"]), row
            assert row["State"] != "planned" or planned(row), row


def is_path(span: str) -> bool:
    return span.split("/")[0] in TOP_FOLDERS and "/" in span and not re.search(r"[\s*<>]", span)


@pytest.mark.parametrize("path", [p for p in PAGES if p != SEEDS], ids=name_of)
def test_every_file_of_ours_that_is_named_exists(path: Path) -> None:
    assert [s for s in SPAN.findall(prose(page(path))) if is_path(s) and not (ROOT / s).exists()] == []


@every_page
def test_every_command_exists(path: Path) -> None:
    text = page(path)
    assert {module for module, _ in commands(text) if not source_of(module).is_file()} == set()
    code = "\n".join([content for _, content in blocks(text)] + SPAN.findall(prose(text)))
    targets = set(re.findall(r"^([a-z-]+):", page(ROOT / "Makefile"), re.MULTILINE))
    assert set(re.findall(r"^make (?:\w+=\S+ )?([a-z-]+)", code, re.MULTILINE)) - targets == set()


@every_page
def test_every_relative_link_resolves(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page(path))):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def anchors(path: Path) -> set[str]:
    """Names of a page's headings, as Git hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_python_in_a_page_parses_and_imports_what_exists(path: Path) -> None:
    for label, content in blocks(page(path)):
        if label != "python":
            continue
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kb_ray"):
                module = importlib.import_module(str(node.module))
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@every_page
def test_a_page_says_nothing_that_only_its_authors_understand(path: Path) -> None:
    found = [match[0] for pattern in PRIVATE for match in re.finditer(pattern, page(path), re.IGNORECASE)]
    assert found == []


def test_the_map_has_one_line_for_each_module() -> None:
    listing = next(content for _, content in blocks(page(ROOT / "README.md")) if content.startswith("kb_ray/\n"))
    listed, folders = [], list[str]()
    for line in listing.splitlines():
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        folders[depth:] = [name]
        listed.append("".join(folders))
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not (ROOT / name).exists()] == []
    programs = ("kb_ray/tasks/builtin/", "kb_ray/model/script/")
    modules = {name_of(p) for p in (ROOT / "kb_ray").rglob("*.py") if p.name != "__init__.py"}
    assert {m for m in modules if not m.startswith(programs)} - set(listed) == set()


def test_the_table_of_statuses_is_the_one_in_force() -> None:
    table = next(t for t in tables(page(ROOT / "docs" / "verifier.md")) if "Status" in t[0])
    told = set()
    for row in table:
        status, late = Status(SPAN.findall(row["Status"])[0]), "after running" in row["Status"]
        early = status is Status.NO_KERNEL and not late
        implied = validity(status, Stage.STATIC if early else Stage.FULL)
        assert tuple(row[name] == "yes" for name in ("valid", "compiled", "correct")) == implied, row
        category = row["Told to the model as"].partition(",")[0]
        assert category == CATEGORY_BY_STATUS[status] or status is Status.INFRA_ERROR, row
        told.add((status, early))
    assert told == {(status, False) for status in Status} | {(Status.NO_KERNEL, True)}


def test_stages_stop_reasons_and_columns_are_all_described() -> None:
    verifier, traces = page(ROOT / "docs" / "verifier.md"), page(ROOT / "docs" / "traces.md")
    rows = [row for text in (verifier, traces) for table in tables(text) for row in table]
    first = {key: [s for row in rows if key in row for s in SPAN.findall(row[key])] for key in
             ("Stage", "Stop reason", "Column")}  # fmt: skip
    assert first["Stage"] == [str(stage) for stage in Stage]
    assert sorted(first["Stop reason"]) == sorted(StopReason)
    assert sorted(first["Column"]) == sorted(SCHEMA.names)


def test_the_families_of_inputs_are_the_real_ones() -> None:
    from kb_ray.bench.child.inputs import variants

    table = next(t for t in tables(page(ROOT / "docs" / "verifier.md")) if "Family" in t[0])
    assert {row["Family"].strip("`") for row in table} == {variant.family for variant in variants(8)}
