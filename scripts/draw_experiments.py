"""Draws docs/real-chip.svg: the shares of hits of a real chip and of its model, one small picture an experiment.

`make real-chip` pipes `waykeeper chip compare platinum-8570 --json` into it. Knows nothing of the model.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"
COLUMNS = 6


def main() -> None:
    curves: dict[tuple[str, str], list[dict]] = {}
    for row in json.load(sys.stdin)["rows"]:
        curves.setdefault((row["file"], row["experiment"]), []).append(row)
    # One or two points are no curve.
    draw({name: rows for name, rows in curves.items() if len(rows) > 3})


def draw(curves: dict[tuple[str, str], list[dict]]) -> None:
    """Model as a line, measurement as crosses."""
    # Text stays text, and the same rows give the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "waykeeper"})
    rows = -(-len(curves) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(2.3 * COLUMNS, 2.1 * rows), layout="constrained")
    for axis, ((file, name), points) in zip(axes.flat, curves.items()):
        known = [point for point in points if point["model"] is not None]
        axis.plot([point["x"] for point in known], [point["model"] for point in known], color="#12355b", linewidth=1.2)
        axis.plot(
            [point["x"] for point in points], [point["measured"] for point in points], "x", color="black", markersize=4
        )
        axis.set_xscale("symlog", linthresh=min(point["x"] for point in points if point["x"] > 0))
        axis.set_ylim(-0.03, 1.05)
        axis.set_title(f"{name}, {file.removesuffix('.toml')}", fontsize=7)
        axis.set_xlabel(points[0]["x_is"], fontsize=6)
        axis.tick_params(labelsize=6)
    for axis in list(axes.flat)[len(curves) :]:
        axis.axis("off")
    figure.suptitle("Share of loads that hit: a real Emerald Rapids (crosses) and its model (line)", fontsize=9)
    figure.savefig(DOCS / "real-chip.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
