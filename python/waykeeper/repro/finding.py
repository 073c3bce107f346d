"""The result of a figure for a claim: a number, an interval, a knee, or statements that hold or do not hold.

A finding does not contain the published number; `verdict` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class Missing(Exception):
    """What a check needs is not there, so the claim is not tested. The text says what is missing and why.

    Only what holds results raises it. Any other exception of a check is a mistake in the check.
    """


class CaseFailed(Missing):
    """A simulation failed."""


class NotAvailable(Missing):
    """The model gives no such value in a run, for example a hit ratio where nothing was looked up."""


@dataclass(frozen=True)
class Finding:
    """The result for one claim."""

    low: float | None = None
    """The number, or the lower end of an interval, in the claim's unit."""
    high: float | None = None
    shape: bool | None = None
    """Whether the shape is right even if the number is not; `None`: decided by the sign of the number."""
    checks: Mapping[str, bool] = field(default_factory=dict)
    """Statements and whether they hold."""
    step: float = 0.0
    """The grid step at a knee, which limits its precision."""
    at_end: bool = False
    """Whether the published knee is at the end of the sweep, so that only the grid step limits its precision."""
    absent: str = ""
    """What ours does not show, where the claim is about its removal: the claim is then not tested."""
    second: Mapping[str, bool] = field(default_factory=dict)
    """Statements of the claim's second target (`Claim.second_source`), if this has no number, and whether they hold."""

    @property
    def has_number(self) -> bool:
        """Whether the finding has a number."""
        return self.low is not None

    @property
    def holds(self) -> bool:
        """Whether all statements hold."""
        return all(self.checks.values())

    def ours(self) -> str:
        """The finding as text."""
        parts = []
        if self.low is not None and self.high is not None:
            parts.append(f"{self.low:.3g}" if self.low == self.high else f"{self.low:.3g} to {self.high:.3g}")
        failed = [text for text, holds in self.checks.items() if not holds]
        if failed:
            parts.append("does not hold: " + "; ".join(failed))
        elif self.checks and not parts:
            parts.append("; ".join(self.checks))
        return ", ".join(parts)


def number(value: float | None, shape: bool | None = None, holds: Mapping[str, object] | None = None) -> Finding:
    """One number in the claim's unit. `None`: ours shows no such number, for example no reaction; the claim is then not
    reproduced. `holds` are statements that the claim makes besides; all must hold."""
    return span(value, value, shape, holds)


def span(
    low: float | None,
    high: float | None,
    shape: bool | None = None,
    holds: Mapping[str, object] | None = None,
) -> Finding:
    """The interval of values in a sweep, in the claim's unit. `holds` as for `number`."""
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Finding(low=low, high=high, shape=shape, checks=_held(holds or {}))


def absent(effect: str) -> Finding:
    """For a claim about the removal of an effect that our runs do not show: a sentence that says so, with the number."""
    return Finding(absent=effect)


def checks(statements: Mapping[str, object], second: Mapping[str, object] | None = None) -> Finding:
    """Statements about shape or order, each true or false; all must hold. `second` are those of the claim's second target."""
    if not statements:
        raise ValueError("a finding has no statement; it needs at least one")
    return Finding(checks=_held(statements), second=_held(second or {}))


def knee(
    value: float | None,
    shape: object,
    step: float = 0.0,
    *,
    high: float | None = None,
    at_end: bool = False,
) -> Finding:
    """Where a curve bends, in the claim's unit, and whether it bends as published. Of several curves `value` is the smallest
    knee and `high` the largest.

    `step` is the grid's step there, and only given if the published knee is not a point of the grid. `at_end` says that the
    published knee is at the end of the sweep, where a quarter of it would pass any knee; `step` alone then counts.
    """
    return Finding(
        low=value,
        high=value if high is None else high,
        shape=bool(shape),
        checks={"the curve bends as published": bool(shape)},
        step=step,
        at_end=at_end,
    )


def _held(statements: Mapping[str, object]) -> dict[str, bool]:
    return {text: bool(holds) for text, holds in statements.items()}
