"""Figures as PNG and SVG files, by matplotlib. Knows no metrics; the page draws the same figures by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kb_ray.errors import ConfigError
from kb_ray.reporting.figure import Figure, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
_SIZE, _DPI = (7.0, 4.2), 150


def draw_all(figures: Iterable[Figure], folder: Path) -> list[Path]:
    """NAME.png and NAME.svg of each figure, replaced where they are there. ConfigError without matplotlib.

    A figure that holds nothing becomes a picture that says why.
    """
    check_available()
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures:
        canvas = Canvas(figsize=_SIZE, dpi=_DPI, layout="constrained")
        _draw(canvas.add_subplot(), figure)
        for name in FORMATS:
            path = folder / f"{figure.name}.{name}"
            # Equal numbers give equal files, and a text in an SVG can be searched.
            with rc_context({"svg.hashsalt": "kb_ray", "svg.fonttype": "none"}):
                canvas.savefig(path, metadata={"Date": None} if name == "svg" else None)
            written.append(path)
    return written


def check_available() -> None:
    """ConfigError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("--plots needs matplotlib: pip install 'kb-ray[report]'") from None


def _draw(axes: Axes, figure: Figure) -> None:
    axes.set_title(figure.title)
    if figure.empty is not None:
        axes.text(0.5, 0.5, figure.empty, ha="center", va="center", wrap=True, transform=axes.transAxes)
        axes.set_axis_off()
        return
    {"curve": _curve, "points": _points, "stack": _stack, "histogram": _histogram, "bars": _bars}[figure.kind](
        axes, figure
    )
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    if figure.percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylim(0, 1)
    if len(figure.series) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Axes, figure: Figure) -> None:
    for series in figure.series:
        axes.step(figure.x, _numbers(series.y), where="post", color=series.colour, label=series.label)
    axes.set_xlim(left=0)


def _points(axes: Axes, figure: Figure) -> None:
    for at, series in enumerate(figure.series):
        shift = (at - (len(figure.series) - 1) / 2) * 0.12
        known = [(x + shift, y, lo, hi) for x, (y, lo, hi) in enumerate(_ends(series)) if y is not None]
        axes.errorbar(
            [x for x, *_ in known],
            [y for _, y, *_ in known],
            yerr=[[y - lo for _, y, lo, _ in known], [hi - y for _, y, _, hi in known]],
            color=series.colour, label=series.label, marker="o", capsize=3,
        )  # fmt: skip
    axes.set_xticks(range(len(figure.categories)), list(figure.categories))


def _ends(series: Series) -> list[tuple[float | None, float, float]]:
    """(y, low, high) of each place, an interval without an end being as wide as its value."""
    rows = []
    for y, low, high in zip(series.y, series.low, series.high, strict=True):
        middle = 0.0 if y is None else y
        rows.append((y, middle if low is None else min(low, middle), middle if high is None else max(high, middle)))
    return rows


def _stack(axes: Axes, figure: Figure) -> None:
    places = range(len(figure.categories))
    below = [0.0] * len(figure.categories)
    for series in figure.series:
        heights = _numbers(series.y)
        axes.bar(places, heights, bottom=below, color=series.colour, label=series.label)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_xticks(places, list(figure.categories))


def _histogram(axes: Axes, figure: Figure) -> None:
    widths = [high - low for low, high in zip(figure.x, figure.x[1:], strict=False)]
    axes.bar(
        figure.x[:-1], _numbers(figure.series[0].y), widths, align="edge", color=figure.series[0].colour,
        edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    if figure.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _bars(axes: Axes, figure: Figure) -> None:
    axes.barh(list(figure.categories), _numbers(figure.series[0].y), color=figure.series[0].colour)
    axes.invert_yaxis()


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [0.0 if value is None else value for value in values]
