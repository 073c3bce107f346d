"""Draws a figure: our results as lines or bars, published points as markers. Error bars are one standard deviation over the
seeds.

Our curves differ in line style and marker, and published points are black, so that a figure is readable in grey.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import ScalarFormatter  # noqa: E402

from .. import outputs  # noqa: E402
from .figure import Panel, Points, Series  # noqa: E402

STYLES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2))]
MARKERS = ["o", "s", "^", "D", "v", "P"]
PUBLISHED = ["x", "+", "1", "2", "3", "4"]
# From dark to light, so that order survives a black and white print.
COLOURS = ["#12355b", "#b5541c", "#2a7f62", "#7d5ba6", "#8a8d91", "#c9a227"]
HATCHES = ["", "//", "..", "xx", "--", "\\\\"]


def draw(panels: Sequence[Panel], title: str, path: Path) -> list[Path]:
    """Writes a figure as PNG and PDF; `path` has no suffix."""
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5.6 * columns, 3.7 * rows), squeeze=False, layout="constrained")
    flat = [axis for row in axes for axis in row]
    for axis, panel in zip(flat, panels):
        _panel(axis, panel)
    for axis in flat[len(panels) :]:
        axis.axis("off")
    figure.suptitle(title, fontsize=11)
    written = []
    for suffix in (".png", ".pdf"):
        file = path.with_name(path.name + suffix)
        # Without dates, so that the same results give the same bytes.
        metadata: dict[str, Any] = {"Software": None} if suffix == ".png" else {"CreationDate": None}
        picture = io.BytesIO()
        figure.savefig(picture, format=suffix[1:], dpi=110, metadata=metadata)
        outputs.write(file, picture.getvalue())
        written.append(file)
    plt.close(figure)
    return written


def _panel(axis: Any, panel: Panel) -> None:
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x)
    axis.set_ylabel(panel.y)
    everything: list[Series | Points] = [*panel.series, *panel.published]
    if any(isinstance(x, str) for curve in everything for x in curve.x):
        _bars(axis, panel)
    else:
        _lines(axis, panel)
    if panel.log_y:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    axis.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    if everything:
        axis.legend(fontsize=7, frameon=False)


def _lines(axis: Any, panel: Panel) -> None:
    for index, series in enumerate(panel.series):
        x, y = _known(series)
        axis.errorbar(
            x,
            y,
            yerr=_errors(series),
            capsize=2,
            elinewidth=0.8,
            linestyle=STYLES[index % len(STYLES)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=4,
            color=COLOURS[index % len(COLOURS)],
            label=series.label,
        )
    for index, points in enumerate(panel.published):
        x, y = _known(points)
        marker = PUBLISHED[index % len(PUBLISHED)]
        axis.plot(x, y, linestyle="none", marker=marker, markersize=8, color="black", label=points.label)
    if panel.log_x:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(ScalarFormatter())


def _bars(axis: Any, panel: Panel) -> None:
    names = list(dict.fromkeys(str(x) for curve in [*panel.series, *panel.published] for x in curve.x))
    place = {name: index for index, name in enumerate(names)}
    count = max(len(panel.series), 1)
    width = 0.8 / count
    offsets = [(index - (count - 1) / 2) * width for index in range(count)]
    for index, series in enumerate(panel.series):
        x, y = _known(series)
        axis.bar(
            [place[str(name)] + offsets[index] for name in x],
            y,
            width * 0.95,
            yerr=_errors(series),
            error_kw={"elinewidth": 0.8, "capsize": 2},
            color=COLOURS[index % len(COLOURS)],
            alpha=0.75,
            hatch=HATCHES[index % len(HATCHES)],
            edgecolor="white",
            label=series.label,
        )
    for index, points in enumerate(panel.published):
        x, y = _known(points)
        shift = offsets[index] if len(panel.published) == count else 0.0
        axis.plot(
            [place[str(name)] + shift for name in x],
            y,
            linestyle="none",
            marker=PUBLISHED[index % len(PUBLISHED)],
            markersize=8,
            color="black",
            label=points.label,
        )
    turn = 30 if any(len(name) > 7 for name in names) else 0
    axis.set_xticks(range(len(names)), names, rotation=turn, ha="right" if turn else "center", fontsize=8)


def _known(curve: Series | Points) -> tuple[list[Any], list[float]]:
    pairs = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y is not None]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _errors(series: Series) -> list[float] | None:
    """Lengths of the error bars of the drawn points; 0 for a point whose spread is not known."""
    if not series.spread:
        return None
    pairs = zip(series.y, series.spread, strict=True)
    return [spread or 0.0 for y, spread in pairs if y is not None]
