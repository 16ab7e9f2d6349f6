"""Text between two marks of a Markdown file, replaced by each run of a benchmark, and the mark of a goal that a
figure of it misses. Knows no figures."""

from __future__ import annotations

from pathlib import Path


def put_between(path: Path, begin: str, end: str, content: str) -> None:
    """Replaces what stands between the marks, or appends it with them."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    body = f"{begin}\n{content}\n{end}"
    if begin in text and end in text:
        text = text.partition(begin)[0] + body + text.partition(end)[2]
    else:
        text = f"{text.rstrip()}\n\n{body}\n".lstrip()
    path.write_text(text, encoding="utf-8")


def goal(words: str, met: bool) -> str:
    """A goal as it stands beside its figure in a table."""
    return words if met else f"{words}: **missed**"
