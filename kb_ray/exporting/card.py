"""The card of an export: a README.md that says what the data is, where it comes from and how it was made.

Its head is the YAML that the Hugging Face hub reads. Pure: text from counts; knows no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kb_ray import __version__
from kb_ray.evaluation.origins import model_of
from kb_ray.exporting.licences import licence, of_all, remark
from kb_ray.exporting.options import ExportOptions
from kb_ray.traces.reading import Survey
from kb_ray.traces.run import RunInfo, read_run

_TITLES = {
    "sft": "Conversations that end in a verified Triton kernel",
    "rl": "Triton kernels with their prompts, verdicts and rewards",
    "preference": "Pairs of Triton kernels, the better one chosen",
    "raw": "Traces of Triton kernels: whole episodes with every turn",
    "seed1": "Traces in the format of KernelBench Triton's orchestrator",
    "kernelbench": "Kernels in the layout of KernelBench's generations",
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_PRINTED = ("source", "level", "status", "kind")


@dataclass
class Counts:
    """How many rows there are of each value of a few columns, of those that a view has."""

    of: dict[str, Counter[str]] = field(default_factory=dict)
    tasks: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    examples: Counter[str] = field(default_factory=Counter)
    """Rows whose messages show examples of a corpus, by corpus."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Counts one row of any view."""
        for name in _PRINTED:
            if name in row:
                self.of.setdefault(name, Counter())[str(row[name])] += 1
        self.tasks.add(str(row["task_id"]))
        shown = (row.get("retrieved") or {}).get("examples") or ()
        self.examples.update({str(example["example_id"]).partition("/")[0] for example in shown})
        if row.get("model"):
            self.models.add(str(row["model"]))


@dataclass(frozen=True)
class Story:
    """What the card tells besides counts."""

    found: Survey
    options: ExportOptions
    removed: str
    command: str
    data_files: str
    loader: str
    rows: int


def text(story: Story, counts: Counts) -> str:
    """The whole README.md."""
    run = read_run(story.found.store)
    sources = sorted(counts.of.get("source", ()))
    head = yaml.safe_dump(_head(story, sources, sorted(counts.examples)), sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n" + "\n".join(_body(story, counts, sources, run)) + "\n"


def _head(story: Story, sources: list[str], examples: list[str]) -> dict[str, Any]:
    view = story.options.view
    head: dict[str, Any] = {
        "pretty_name": _TITLES[view],
        "license": of_all({*sources, *examples}, story.options.licenses),
        "language": ["en"],
        "tags": ["triton", "gpu-kernels", "code", f"kb-ray-{view}"],
        "size_categories": [next((name for most, name in _SIZES if story.rows < most), "n>1M")],
    }
    if story.loader:
        data_files = [{"split": "train", "path": story.data_files}]
        head |= {"configs": [{"config_name": "default", "data_files": data_files}]}
    return head


def _body(story: Story, counts: Counts, sources: list[str], run: RunInfo | None) -> Iterator[str]:
    options, found = story.options, story.found
    yield f"# {_TITLES[options.view]}"
    yield ""
    size = f"{story.rows} rows of {len(counts.tasks)} tasks"
    yield f"{size}, view `{options.view}` of kb_ray {__version__}, made by"
    yield from ("", "```bash", story.command, "```", "")
    yield f"from {found.episodes} episodes of the trace store `{found.store.uri}`."
    if run is not None:
        version = run.versions.get("kb_ray", "of an unknown version")
        yield f"Run `{run.run_id}`, settings `{run.fingerprint}`, begun {run.created_at}, kb_ray {version}."
    asked = model_of(run) if run else None
    models = sorted(counts.models) or ([asked] if asked else [])
    if models:
        yield f"Answers by {', '.join(f'`{model}`' for model in models)}."
    yield from ("", f"Left out: {story.removed}.")
    if found.superseded:
        yield f"{found.superseded} rows of other attempts do not count."
    for file in found.damaged:
        yield f"Not read, since it is damaged: `{file.key}` ({file.reason})."
    for name, counted in counts.of.items():
        yield from ("", f"| {name} | rows |", "|---|---|")
        yield from (f"| {value} | {count} |" for value, count in counted.most_common())
    if sources:
        yield from ("", "## Licences", "", "Of the PyTorch programs; answers were written by the model.", "")
        yield from ("| source | licence |", "|---|---|")
        yield from (f"| {name} | {_licence(name, options.licenses)} |" for name in sources)
    if counts.examples:
        yield from (
            "",
            "## Retrieved examples",
            "",
            "Programs and kernels that the prompts show, by corpus.",
            "",
        )
        yield from ("| corpus | rows | licence |", "|---|---|---|")
        for name, count in sorted(counts.examples.items()):
            yield f"| {name} | {count} | {_licence(name, options.licenses)} |"
    if story.loader:
        yield from ("", "## Reading", "", "```python", "import datasets", "", f"rows = {story.loader}", "```")


def _licence(source: str, known: Mapping[str, str]) -> str:
    name, told = licence(source, known), remark(source)
    return f"{name}: {told}" if told and source not in known else name
