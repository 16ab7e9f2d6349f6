"""What a plot is: labels and numbers, drawn alike by the page and by the files. Only declarations and colours."""

from __future__ import annotations

from typing import Literal

from kb_ray.records import Record, Status


class Series(Record):
    """One line, one kind of bar, or one colour of a stack."""

    label: str
    colour: str
    """#rrggbb, readable on white and on near-black."""
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    """Lower ends of 95 % intervals, one for each y, or none."""
    high: tuple[float | None, ...] = ()


class Figure(Record):
    """One plot. `x` holds positions of a curve or the n + 1 edges of n bins; `categories` what bars stand for."""

    name: str
    """Stem of its file."""
    title: str
    kind: Literal["curve", "points", "stack", "histogram", "bars"]
    note: str
    """One sentence: what is counted over what."""
    x_label: str
    y_label: str
    x: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()
    log_x: bool = False
    percent: bool = False
    """Whether y is a share, 0 to 1, to be shown in percent."""
    series: tuple[Series, ...] = ()
    empty: str | None = None
    """Why there is nothing to draw."""


BLUE, ORANGE, GREEN = "#3b82c4", "#c96a12", "#2f9e5f"

STATUS_COLOURS: dict[Status, str] = {
    Status.OK: "#2f9e5f",
    Status.NO_CODE: "#8a8f98",
    Status.TRUNCATED: "#a3a8b0",
    Status.SYNTAX_ERROR: "#6f7681",
    Status.FORBIDDEN: "#585f6b",
    Status.NO_KERNEL: "#8d7b68",
    Status.IMPORT_ERROR: "#9b8ad6",
    Status.COMPILE_ERROR: "#7a5cc7",
    Status.RUNTIME_ERROR: "#c96a12",
    Status.ILLEGAL_ACCESS: "#a9550a",
    Status.OOM: "#d98d3f",
    Status.TIMEOUT: "#c9a227",
    Status.CRASH: "#8f4a12",
    Status.WRONG_STRUCTURE: "#5fa8d3",
    Status.WRONG_SHAPE: "#3b82c4",
    Status.WRONG_DTYPE: "#2b6cb0",
    Status.NONFINITE: "#1f8a9e",
    Status.MISMATCH: "#d1495b",
    Status.MUTATED_INPUT: "#b03a6e",
    Status.HACK: "#b5179e",
    Status.INFRA_ERROR: "#767b83",
}
"""One colour for each status; failures of one kind share a hue."""
