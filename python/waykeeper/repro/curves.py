"""Words about curves that figures need: rising, falling, where it crosses, about the same.

Every word takes plain numbers, `None` among them makes it false: what was not measured shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

Values = Sequence[float | None]


def rising(values: Values, slack: float = 0.0) -> bool:
    """Ends higher than it began and never falls by more than `slack` of the highest value on the way."""
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
    """The other way round."""
    known = _all(values)
    return known is not None and rising([-value for value in known], slack)


def about_equal(values: Values, part: float) -> bool:
    """All within `part` of their mean."""
    known = _all(values)
    if not known:
        return False
    mean = sum(known) / len(known)
    return all(abs(value - mean) <= part * abs(mean) for value in known)


def spread_ratio(values: Values) -> float | None:
    """Largest over smallest."""
    known = _all(values)
    return max(known) / min(known) if known and min(known) > 0 else None


def crossing(xs: Sequence[float], ys: Values, level: float) -> float | None:
    """The first x at which the curve crosses `level`, by straight lines between points; `None` if it does not."""
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
