"""Properties of curves for figures: rising, falling, crossing a level, about equal.

All functions take plain numbers: a value that is not available is no number, so whether a property holds is not known either.
"""

from __future__ import annotations

from collections.abc import Sequence

Values = Sequence[float]


def rising(values: Values, slack: float = 0.0) -> bool:
    """Whether the curve ends above its start and never falls by more than `slack` times its highest value."""
    if len(values) < 2:
        return False
    allowed = slack * max(abs(value) for value in values)
    top = values[0]
    for value in values[1:]:
        if value < top - allowed:
            return False
        top = max(top, value)
    return values[-1] > values[0]


def falling(values: Values, slack: float = 0.0) -> bool:
    """Whether the negated curve is rising."""
    return rising([-value for value in values], slack)


def about_equal(values: Values, part: float) -> bool:
    """Whether all values are within `part` of their mean."""
    if not values:
        return False
    mean = sum(values) / len(values)
    return all(abs(value - mean) <= part * abs(mean) for value in values)


def spread_ratio(values: Values) -> float | None:
    """Largest value divided by smallest."""
    return max(values) / min(values) if values and min(values) > 0 else None


def crossing(xs: Sequence[float], ys: Values, level: float) -> float | None:
    """The first x at which the curve crosses `level`, with linear interpolation; `None` if it does not."""
    points = list(zip(xs, ys, strict=True))
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if (y0 - level) * (y1 - level) <= 0 and y0 != y1:
            return x0 + (x1 - x0) * (level - y0) / (y1 - y0)
    return None
