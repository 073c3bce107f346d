"""The published claims: one row of claims.csv each, as `algorithms.md` 0 explains them.

This module reads the table only; it does not judge claims.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

KINDS = ("absolute", "relative", "shape", "ordering")

MAXIMUM = "(upper bound)"
"""In a unit: the number is reached, but not exceeded."""

CEILING = re.compile(r"\b(at most|at or below|below|only)\s+~?\d", re.IGNORECASE)
"""Phrases that make a number an upper bound."""

PAPERS = {
    "ATC20": ("ddio_bench", "Reexamining Direct Cache Access (USENIX ATC 2020)"),
    "ISCA21": ("iat", "Don't Forget the I/O When Allocating Your LLC (ISCA 2021)"),
    "MEMLOAD": ("memload", "Werling's thesis: DMA interference (nvme-memload)"),
    "CAL20": ("idio", "IDIO (Computer Architecture Letters 2020)"),
    "ISCA25": ("a4", "A4 (ISCA 2025)"),
}
"""Prefix of the claims' names -> folder of the figures, title of the paper."""


@dataclass(frozen=True)
class Claim:
    """One published statement."""

    id: str
    where: str
    setup: str
    metric: str
    baseline: str
    text: str
    low: float | None
    """Lower end of the published interval, in `unit`; `None` if it is open or not given."""
    high: float | None
    unit: str
    kind: str
    """`absolute`, `relative`, `shape` or `ordering`."""
    hardware_only: bool
    notes: str
    second_low: float | None = None
    """Lower end of a second published interval that differs from the first: of the authors' data where these differ from the
    paper's text, or of another statement of the paper."""
    second_high: float | None = None
    second_source: str = ""
    """Where the second target is from; empty if there is none."""

    @property
    def paper(self) -> str:
        """The folder of the paper's figures."""
        return PAPERS[self.id.split("-")[0]][0]

    @property
    def is_ceiling(self) -> bool:
        """Whether the published effect is an upper bound ("at most 6.4 %", "only 3 %"), not a value that is reached ("up to")."""
        one_number = self.low in (0, self.high)
        return self.kind == "relative" and one_number and CEILING.search(self.text) is not None

    @property
    def is_bound(self) -> bool:
        """Whether the number is a bound, of which every value on one side is right."""
        return self.has_number and (self.low is None or self.high is None or (self.low == 0 and self.high > 0))

    @property
    def is_maximum(self) -> bool:
        """Whether the number is reached and never exceeded."""
        return MAXIMUM in self.unit

    @property
    def has_number(self) -> bool:
        """Whether the claim has a published number."""
        return self.low is not None or self.high is not None

    def second(self) -> Claim:
        """The claim with the numbers of its second target."""
        return replace(self, low=self.second_low, high=self.second_high, second_source="")

    def published(self) -> str:
        """The published number as text, and that of the second target."""
        if self.second_source:
            first, other = replace(self, second_source="").published(), self.second().published()
            return "; ".join(text for text in (first, f"{self.second_source}: {other}" if other else "") if text)
        if not self.has_number:
            return ""
        if self.low is None:
            return f"up to {_short(self.high)} {self.unit}".strip()
        if self.high is None:
            return f"over {_short(self.low)} {self.unit}".strip()
        if self.low == self.high:
            return f"{_short(self.low)} {self.unit}".strip()
        return f"{_short(self.low)} to {_short(self.high)} {self.unit}".strip()


@cache
def claims() -> dict[str, Claim]:
    """All claims by name, in the table's order."""
    with files(__package__).joinpath("claims.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: _claim(row) for row in csv.DictReader(file)}


def _claim(row: dict[str, str]) -> Claim:
    if row["kind"] not in KINDS:
        raise ValueError(f"claims.csv: {row['id']}: kind is {row['kind']!r}; it must be one of {', '.join(KINDS)}")
    return Claim(
        id=row["id"],
        where=row["where"],
        setup=row["setup"],
        metric=row["metric"],
        baseline=row["baseline"],
        text=row["claim"],
        low=_number(row["value_low"]),
        high=_number(row["value_high"]),
        unit=row["unit"],
        kind=row["kind"],
        hardware_only=row["hardware_only"] == "yes",
        notes=row["notes"],
        second_low=_number(row["second_low"]),
        second_high=_number(row["second_high"]),
        second_source=row["second_source"],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
