"""Draws docs/programs.svg and the table of docs/programs.md from the curves on standard input.

`make curves` pipes the example `spec_curves` of crates/machine into it. Knows nothing of the model.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"
MIB = {2: 3.5, 4: 7, 8: 14, 11: 19.25}
START, END = "<!-- curves: written by make curves -->", "<!-- end of curves -->"
CPI, MISSES, LEAST = 0.10, 0.15, 0.1
COLOURS = {"off": "#b5541c", "on": "#12355b"}


def main() -> None:
    curves: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(sys.stdin):
        name, prefetchers = row.pop("program"), row.pop("prefetchers")
        curves[name][prefetchers].append({key: float(value) for key, value in row.items()})
    for halves in curves.values():
        for points in halves.values():
            points.sort(key=lambda point: point["ways"])
    draw(curves)
    page = DOCS / "programs.md"
    text = page.read_text()
    before, rest = text.split(START)
    page.write_text(before + START + "\n" + table(curves) + END + rest.split(END)[1])


def draw(curves: dict) -> None:
    """One pair of small pictures a program: cycles per instruction above, misses below."""
    columns = 6
    rows = -(-len(curves) // columns)
    figure, axes = plt.subplots(2 * rows, columns, figsize=(2.3 * columns, 2.9 * rows), layout="constrained")
    for index, (name, halves) in enumerate(curves.items()):
        above, below = (axes[2 * (index // columns) + half][index % columns] for half in (0, 1))
        for prefetchers, points in halves.items():
            sizes = [MIB[int(point["ways"])] for point in points]
            style = {"color": COLOURS[prefetchers], "linewidth": 1.2}
            for axis, key in ((above, "cpi"), (below, "mpki")):
                axis.plot(
                    sizes,
                    [point[key] for point in points],
                    **style,
                    linestyle="-" if prefetchers == "on" else "--",
                )
                axis.plot(
                    sizes,
                    [point[f"{key}_measured"] for point in points],
                    "x",
                    color="black",
                    markersize=4,
                )
                axis.set_ylim(bottom=0, top=1.15 * max(*axis.dataLim.intervaly, 0.01))
                axis.set_xticks([0, 7, 14, 21])
                axis.tick_params(labelsize=6)
        above.set_title(name, fontsize=8)
        if index % columns == 0:
            above.set_ylabel("CPI", fontsize=7)
            below.set_ylabel("misses / 1000 instr.", fontsize=7)
    for index in range(len(curves), rows * columns):
        for half in (0, 1):
            axes[2 * (index // columns) + half][index % columns].axis("off")
    figure.suptitle(
        "Alone on a Gold 5120, over the size of the LLC in MiB: simulated with prefetchers (solid) and without (dashed); "
        "measured (crosses)",
        fontsize=9,
    )
    # Text stays text, and the same curves give the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "waykeeper"})
    figure.savefig(DOCS / "programs.svg", metadata={"Date": None})


def table(curves: dict) -> str:
    """Measured and simulated at both ends of the curve, and how many of the 16 numbers are within the bounds."""
    lines = [
        "| program | prefetchers | CPI at 2 ways | CPI at 11 | misses at 2 ways | misses at 11 | memory reads at 11 | within bounds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, halves in curves.items():
        for prefetchers, points in sorted(halves.items()):
            inside = sum(
                (abs(point["cpi"] / point["cpi_measured"] - 1) <= CPI)
                + (abs(point["mpki"] - point["mpki_measured"]) <= max(MISSES * point["mpki_measured"], LEAST))
                for point in points
            )
            first, last = points[0], points[-1]
            cells = [
                f"{point[key]:.2f} ({point[key + '_measured']:.2f})"
                for key in ("cpi", "mpki")
                for point in (first, last)
            ]
            cells.append(f"{last['reads']:.2f} ({last['reads_measured']:.2f})")
            lines.append(f"| {name} | {prefetchers} | {' | '.join(cells)} | {inside} of {2 * len(points)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
