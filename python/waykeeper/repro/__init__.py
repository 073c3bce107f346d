"""The reproduction suite: runs every figure and table of the five papers and compares with the published numbers.

A figure is a file in `papers/<paper>/` with the grid of scenarios, the published points, and one function per claim. The shared
parts are the claims (`claims`), the results of a claim's function (`finding`), the bands (`bands`), verdicts (`verdict`), running
(`engine`), drawing (`draw`), the report (`report`), and the effects of the model's mechanisms (`mechanisms`).
`python -m waykeeper.repro --help` lists the commands.
"""

from .bands import lacks
from .curves import about_equal, crossing, falling, rising, spread_ratio
from .figure import Case, Figure, Panel, Points, Series, claim
from .finding import Finding, absent, checks, knee, number, span
from .strength import MEDIUM, STRONG, WEAK, Strength

__all__ = [
    "MEDIUM",
    "STRONG",
    "WEAK",
    "Case",
    "Figure",
    "Finding",
    "Panel",
    "Points",
    "Series",
    "Strength",
    "about_equal",
    "absent",
    "checks",
    "claim",
    "crossing",
    "falling",
    "knee",
    "lacks",
    "number",
    "rising",
    "span",
    "spread_ratio",
]
