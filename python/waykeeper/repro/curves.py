"""Properties of curves for figures: rising, falling, crossing a level, about equal.

All functions take plain numbers. If one of them is `None` (not measured), the property does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence

Values = Sequence[float | None]


def rising(values: Values, slack: float = 0.0) -> bool:
    """Whether the curve ends above its start and never falls by more than `slack` times its highest value."""
    known = _all(values)
    if known is None or len(known) < 2:
        return False
    allowed = slack * max(abs(value) for value in known)
    top = known[0]
    for value in known[1:]:
        if value < top - allowed:
            return False
        top = max(top, value)
    return known[-1] > known[0]


def falling(values: Values, slack: float = 0.0) -> bool:
    """Whether the negated curve is rising."""
    known = _all(values)
    return known is not None and rising([-value for value in known], slack)


def about_equal(values: Values, part: float) -> bool:
    """Whether all values are within `part` of their mean."""
    known = _all(values)
    if not known:
        return False
    mean = sum(known) / len(known)
    return all(abs(value - mean) <= part * abs(mean) for value in known)


def spread_ratio(values: Values) -> float | None:
    """Largest value divided by smallest."""
    known = _all(values)
    return max(known) / min(known) if known and min(known) > 0 else None


def crossing(xs: Sequence[float], ys: Values, level: float) -> float | None:
    """The first x at which the curve crosses `level`, with linear interpolation; `None` if it does not."""
    known = _all(ys)
    if known is None:
        return None
    points = list(zip(xs, known, strict=True))
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if (y0 - level) * (y1 - level) <= 0 and y0 != y1:
            return x0 + (x1 - x0) * (level - y0) / (y1 - y0)
    return None


def _all(values: Values) -> list[float] | None:
    return None if any(value is None for value in values) else [float(value) for value in values]  # type: ignore[arg-type]
