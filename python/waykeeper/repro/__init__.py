"""The reproduction suite: every figure and table of the five papers, ours beside theirs.

A figure is a file in `papers/<paper>/`: the grid of scenarios, the published points, and a function per claim. Everything
else is here once: claims (`claims`), what a function may answer (`finding`), verdicts (`verdict`), running (`engine`),
drawing (`draw`), the report (`report`). `python -m waykeeper.repro --help` runs it.
"""

from .curves import about_equal, crossing, falling, rising, spread_ratio
from .figure import Case, Figure, Panel, Points, Series, claim
from .finding import Finding, checks, knee, number, span

__all__ = [
    "Case",
    "Figure",
    "Finding",
    "Panel",
    "Points",
    "Series",
    "about_equal",
    "checks",
    "claim",
    "crossing",
    "falling",
    "knee",
    "number",
    "rising",
    "span",
    "spread_ratio",
]
