"""Draws docs/modern.svg: what policies bring on a server of 2024, and how long its rings may be.

    python3 scripts/draw_modern.py MIX.json RINGS.json

The files are what `waykeeper run modern --json` and `waykeeper run modern-rings --json` print; `make modern` makes them. Knows nothing of
the model.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"
RING = "nic.nic0.ring"
DELAY = "workload.fastclick.start_delay_ms"
# Of scenarios/modern-rings.toml and its chip.
PACKET_BYTES = 1024
QUEUES = 16
DCA_WAYS_MIB = 30
DARK, LIGHT = "#12355b", "#8fb3d9"


def main() -> None:
    mix, rings = (json.loads(Path(path).read_text()) for path in sys.argv[1:])
    # Text stays text, and the same rows give the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "waykeeper", "font.size": 8})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    draw_policies(left, mix["policies"])
    draw_rings(right, rings["points"])
    figure.savefig(DOCS / "modern.svg", metadata={"Date": None})


def draw_policies(axis: Any, policies: dict[str, Any]) -> None:
    """The means of both groups under each policy."""
    for offset, group, colour in ((-0.2, "HPW", DARK), (0.2, "LPW", LIGHT)):
        means = [policy["groups"][group]["performance_ratio"] for policy in policies.values()]
        axis.bar([at + offset for at in range(len(means))], means, 0.38, color=colour, label=group)
    axis.axhline(1, color="black", linewidth=0.6)
    axis.set_xticks(range(len(policies)), list(policies))
    axis.set_ylim(0, 1.35)
    axis.set_title("Performance relative to no management")
    axis.legend(frameon=False, ncols=2, loc="upper left")


def draw_rings(axis: Any, points: list[dict[str, Any]]) -> None:
    """Hits in the LLC over the size of all rings, with rings that are empty or full at the start."""
    curves: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        (policy,) = point["run"]["policies"].values()
        mib = point["at"][RING] * QUEUES * PACKET_BYTES / 2**20
        curves.setdefault(point["at"][DELAY], []).append((mib, policy["workloads"]["fastclick"]["llc_hit_ratio"]))
    for delay, curve in curves.items():
        mib, hits = zip(*sorted(curve))
        start = "full" if delay else "empty"
        axis.plot(mib, hits, "o-", color=DARK if delay else LIGHT, label=f"rings {start} at the start", markersize=3)
    axis.axvline(DCA_WAYS_MIB, color="black", linewidth=0.6)
    axis.text(DCA_WAYS_MIB, 0.03, " DCA ways", fontsize=7)
    axis.set_xscale("log", base=2)
    sizes = [mib for mib, _ in next(iter(curves.values()))]
    axis.set_xticks(sizes, [f"{mib:g}" for mib in sizes])
    axis.set_ylim(0, 1.05)
    axis.set_xlabel("packets in 16 rings, MiB")
    axis.set_title("Share of packet reads that the LLC serves")
    axis.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.1))


if __name__ == "__main__":
    main()
