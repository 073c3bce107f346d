"""Verdicts: compares a finding with a published claim. The bands are those of `bands`, and depend only on the kind of the claim.

* shape, ordering: all statements must hold. A published knee must be within 25 % or one grid step, at the end of a sweep
  within one grid step; the right shape with the knee elsewhere is `shape only`.
* relative: 0.5 to 2 times the published effect; the right sign with another size is `shape only`. A reduction is compared as
  the increase that undoes it, so that a ratio has one verdict in both directions: 50 % less is 100 % more seen from there. A
  published effect of at most 2 % counts as none: ours may be at most 5 %, which is ddio-bench's own limit for "not
  sensitive" (ATC20 s7). An upper bound ("at most 6.4 %", "only 3 %") is met by every smaller value; up to twice the bound is
  `shape only`.
* absolute: within 25 %; within a factor of two, or with the right shape, `shape only`. A bound ("below 1400", "more than
  3000") is met only on its side.

A claim about the removal of an effect that our runs do not show is `not tested`, as is a claim whose run failed or for which the
model gives no value.

Of a published interval over a sweep both ends are compared with ours. An interval from zero ("up to 30 %") has one end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from .bands import ABSOLUTE, ALIKE, EFFECT, SAME, SIZE, of_size
from .claims import Claim
from .finding import Finding


class Verdict(Enum):
    """The verdict on a claim."""

    REPRODUCED = "reproduced"
    SHAPE_ONLY = "shape only"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTED = "not tested"
    NOT_SIMULABLE = "not simulable"


RATIO_UNITS = ("ratio",)
"""Units in which 1 means "no effect"."""
PART_UNITS = ("percent of",)
"""Units in which 100 means "no effect"."""


@dataclass(frozen=True)
class Judged:
    """A verdict and the deviation of the number."""

    verdict: Verdict
    deviation: float | None = None
    """Relative deviation of our number from the published one: 0.1 is 10 % more. For an interval, of the worse end."""


def judge(claim: Claim, finding: Finding) -> Judged:
    """The verdict for a claim and its finding.

    Raises `ValueError` if the finding does not fit the claim, for example if it has no number but the claim has one.
    """
    if finding.absent:
        return Judged(Verdict.NOT_TESTED)
    if claim.kind in ("shape", "ordering"):
        return _shape(claim, finding)
    if not claim.has_number:
        return _checks(finding)
    if not finding.has_number:
        if finding.checks:
            raise ValueError(f"{claim.id} has a published number; its finding needs one, not only checks")
        return Judged(Verdict.NOT_REPRODUCED)
    if not finding.holds:
        return Judged(Verdict.NOT_REPRODUCED, _deviation(claim, finding))
    return _relative(claim, finding) if claim.kind == "relative" else _absolute(claim, finding)


def _checks(finding: Finding) -> Judged:
    if not finding.checks:
        raise ValueError("a claim without a number needs checks")
    return Judged(Verdict.REPRODUCED if finding.holds else Verdict.NOT_REPRODUCED)


def _shape(claim: Claim, finding: Finding) -> Judged:
    if not finding.checks:
        # A number for a shape: the shape is right if the number is in the published interval.
        if not (claim.has_number and finding.has_number):
            raise ValueError(f"{claim.id} is a claim about shape; its finding needs checks")
        inside = all(_near(ours, published, ABSOLUTE, finding.step) for ours, published in _ends(claim, finding))
        return Judged(Verdict.REPRODUCED if inside else Verdict.NOT_REPRODUCED, _deviation(claim, finding))
    part = 0.0 if finding.at_end else ABSOLUTE
    if not finding.holds:
        return Judged(Verdict.NOT_REPRODUCED)
    if not (claim.has_number and finding.shape is not None):
        return Judged(Verdict.REPRODUCED)
    if not finding.has_number:
        return Judged(Verdict.SHAPE_ONLY)
    inside = all(_near(ours, published, part, finding.step) for ours, published in _ends(claim, finding))
    return Judged(Verdict.REPRODUCED if inside else Verdict.SHAPE_ONLY, _deviation(claim, finding))


def _relative(claim: Claim, finding: Finding) -> Judged:
    neutral = 1.0 if claim.unit.split(" ")[0] in RATIO_UNITS else 100.0 if claim.unit.startswith(PART_UNITS) else 0.0
    scale = 100.0 if neutral == 1.0 else 1.0
    good, same_sign = True, True
    if claim.is_ceiling:
        assert finding.high is not None and claim.high is not None
        return Judged(_ceiling(finding.high, claim.high), _deviation(claim, finding))
    for ours, published in _ends(claim, finding):
        effect, wanted = (ours - neutral) * scale, (published - neutral) * scale
        if abs(wanted) <= EFFECT.percent:
            good &= abs(effect) <= SAME.percent
            same_sign &= abs(effect) <= ALIKE.percent
        else:
            part = _undone(claim, effect, wanted) / _undone(claim, wanted, wanted)
            good &= of_size(part, 1.0)
            same_sign &= part > 0
    if good:
        verdict = Verdict.REPRODUCED
    else:
        shape = same_sign if finding.shape is None else finding.shape
        verdict = Verdict.SHAPE_ONLY if shape else Verdict.NOT_REPRODUCED
    return Judged(verdict, _deviation(claim, finding))


def _undone(claim: Claim, effect: float, wanted: float) -> float:
    """An effect in per cent; if the published one, `wanted`, is a reduction, the increase that undoes it."""
    less = effect if "reduction" in claim.unit else -effect if wanted < 0 else None
    if less is None:
        return effect
    return math.inf if less >= 100 else less / (1 - less / 100)


def _ceiling(ours: float, published: float) -> Verdict:
    if ours <= published:
        return Verdict.REPRODUCED
    return Verdict.SHAPE_ONLY if ours <= published / SIZE else Verdict.NOT_REPRODUCED


def _absolute(claim: Claim, finding: Finding) -> Judged:
    ends = _ends(claim, finding)
    # Of a bound, `_ends` has a pair of two numbers only if ours is on the wrong side of it.
    allowed = 0.0 if claim.is_bound else ABSOLUTE
    beyond = claim.is_maximum and finding.high is not None and finding.high > claim.high  # type: ignore[operator]
    if not beyond and all(_near(ours, published, allowed, 0.0) for ours, published in ends):
        return Judged(Verdict.REPRODUCED, _deviation(claim, finding))
    near = all(_within_factor(ours, published, 1 / SIZE) for ours, published in ends)
    shape = near if finding.shape is None else finding.shape
    return Judged(Verdict.SHAPE_ONLY if shape else Verdict.NOT_REPRODUCED, _deviation(claim, finding))


def _ends(claim: Claim, finding: Finding) -> list[tuple[float, float]]:
    """Pairs of our number and the published one, for each end that can be compared.

    A single number is compared with the nearest point of an interval. With a bound ("up to", "over") it is compared only if
    it is on the wrong side of the bound.
    """
    low, high = finding.low, finding.high
    assert low is not None and high is not None
    if claim.low is None or claim.high is None:
        bound = claim.high if claim.low is None else claim.low
        assert bound is not None
        over = claim.low is None
        value = high if over else low
        return [(bound, bound)] if (value <= bound if over else value >= bound) else [(value, bound)]
    if claim.low == claim.high:
        return [(low, claim.low)] if low == high else [(low, claim.low), (high, claim.high)]
    if claim.low == 0 and claim.kind == "absolute":
        # An upper bound: every smaller value is right.
        return [(high, claim.high)] if high > claim.high else [(claim.high, claim.high)]
    if claim.low == 0:
        return [(high, claim.high)]
    if low == high:
        nearest = min(max(low, claim.low), claim.high)
        return [(low, nearest)]
    return [(low, claim.low), (high, claim.high)]


def _near(ours: float, published: float, part: float, step: float) -> bool:
    return abs(ours - published) <= max(part * abs(published), step, 1e-9)


def _within_factor(ours: float, published: float, factor: float) -> bool:
    if published == 0:
        return ours == 0
    return 1 / factor <= ours / published <= factor


def _deviation(claim: Claim, finding: Finding) -> float | None:
    if not finding.has_number or not claim.has_number:
        return None
    off = [(ours - published) / abs(published) for ours, published in _ends(claim, finding) if published]
    return max(off, key=abs) if off else None
