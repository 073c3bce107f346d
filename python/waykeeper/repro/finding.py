"""What a figure says about a claim: a number, an interval, a knee, or checks that hold or not.

A finding knows nothing of what was published; `verdict` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """What came out for one claim."""

    low: float | None = None
    """The number found, or the lower end of an interval, in the claim's unit."""
    high: float | None = None
    shape: bool | None = None
    """Whether the shape is there, for a number that may be off; `None` leaves it to the number's sign."""
    checks: Mapping[str, bool] = field(default_factory=dict)
    """Statements and whether they hold."""
    step: float = 0.0
    """A grid step: a knee cannot be found more exactly."""

    @property
    def has_number(self) -> bool:
        """A number was found."""
        return self.low is not None

    @property
    def holds(self) -> bool:
        """All checks hold."""
        return all(self.checks.values())

    def ours(self) -> str:
        """The finding as people write it."""
        parts = []
        if self.low is not None and self.high is not None:
            parts.append(f"{self.low:.3g}" if self.low == self.high else f"{self.low:.3g} to {self.high:.3g}")
        failed = [text for text, holds in self.checks.items() if not holds]
        if failed:
            parts.append("not so: " + "; ".join(failed))
        elif self.checks and not parts:
            parts.append("; ".join(self.checks))
        return ", ".join(parts)


def number(value: float | None, shape: bool | None = None) -> Finding:
    """One number in the claim's unit. `None` is "not available" and reproduces nothing."""
    return Finding(low=value, high=value, shape=shape)


def span(low: float | None, high: float | None, shape: bool | None = None) -> Finding:
    """The interval that a sweep covers, in the claim's unit."""
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Finding(low=low, high=high, shape=shape)


def checks(statements: Mapping[str, object]) -> Finding:
    """Statements of shape or order, each true or false; all must hold."""
    if not statements:
        raise ValueError("a finding without a statement says nothing")
    return Finding(checks={text: bool(holds) for text, holds in statements.items()})


def knee(value: float | None, shape: object, step: float = 0.0) -> Finding:
    """Where a curve bends, in the claim's unit, and whether it bends as published; `step` is the grid's step there."""
    return Finding(
        low=value, high=value, shape=bool(shape), checks={"the curve bends as published": bool(shape)}, step=step
    )
