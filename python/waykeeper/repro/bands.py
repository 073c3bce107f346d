"""The bands: how much a number may differ from what a claim says. Every figure and every verdict takes them from here.

A claim without a published size is checked by the word that the paper uses:

| the paper says | band | function |
| --- | --- | --- |
| higher, lower, more, falls, helps | `EFFECT` | `higher`, `lower`; slack of `rising` and `falling` |
| raised here, but not there | `SAME` | `raised`, `lowered`, and `not_higher`, `not_lower` |
| the same, unaffected, constant, no gain, as good as, levels off | `SAME` | `same`, `not_higher`, `not_lower`; part of `about_equal` |
| about as, like, largely unchanged | `ALIKE` | `alike` |
| considerably, far, notably, strongly, slightly (not far) | `FAR` | `far_higher`, `far_lower` |
| nearly all, hardly any, some of it | `FEW` | `nearly_all`, `hardly_any`, `some` |
| most, similar in size, a size that a second source gives | `SIZE` | `most`, `of_size`, `many_times`, `lacks` |

A number that the published text itself states ("exceed the 5 % threshold") is not a band: it is a constant of the figure whose text names
the claim. This module must not depend on claims or figures.
"""

from __future__ import annotations


class Band(float):
    """A limit as a part of the number that it belongs to, with its meaning and its reason."""

    meaning: str
    reason: str

    def __new__(cls, limit: float, meaning: str, reason: str) -> Band:
        band = super().__new__(cls, limit)
        band.meaning, band.reason = meaning, reason
        return band

    @property
    def percent(self) -> float:
        """The limit in per cent, or in points of a number in per cent."""
        return 100 * float(self)

    @property
    def text(self) -> str:
        """The limit as words: `5 %`."""
        return f"{self.percent:g} %"

    @property
    def points(self) -> str:
        """The limit of a difference of two numbers in per cent: `5 points`."""
        return f"{self.percent:g} points"


EFFECT = Band(
    0.02,
    "a smaller effect is none; a step back of a curve by less is noise",
    "our choice; a published effect of at most 2 % counts as none too",
)
SAME = Band(
    0.05,
    "numbers that differ by at most this are the same; one that is over it is raised",
    'ATC20 s7: an application that changes by at most 5 % is "not sensitive"',
)
ALIKE = Band(
    2 * SAME,
    "numbers that differ by at most this are about the same",
    'twice `SAME`: up to there an effect where none is published has the verdict "shape only"',
)
FAR = Band(
    2 * SAME,
    "numbers that differ by more are far apart",
    "twice `SAME`: what is no longer about the same",
)
FEW = Band(
    0.1,
    "a smaller part is hardly any, and without it nearly all are left",
    "our choice; 10 % is what most figures had before there was one table",
)
SIZE = Band(
    0.5,
    "a number of a stated size is at least this part of it, and at most so many times as large",
    "our choice: half to twice, as for relative effects",
)
ABSOLUTE = Band(
    0.25,
    "an absolute number, and the place of a knee, differ by at most this",
    "our choice",
)
TABLE = {
    "effect": EFFECT,
    "same": SAME,
    "alike": ALIKE,
    "far": FAR,
    "few": FEW,
    "size": SIZE,
    "absolute": ABSOLUTE,
}


def higher(value: float, than: float) -> bool:
    """Whether a number is above another by an effect."""
    return value - than > EFFECT * abs(than)


def lower(value: float, than: float) -> bool:
    """Whether a number is below another by an effect."""
    return than - value > EFFECT * abs(than)


def far_higher(value: float, than: float) -> bool:
    """Whether a number is far above another."""
    return value - than > FAR * abs(than)


def far_lower(value: float, than: float) -> bool:
    """Whether a number is far below another."""
    return than - value > FAR * abs(than)


def not_higher(value: float, than: float) -> bool:
    """Whether a number is the same as another, or below it."""
    return value - than <= SAME * abs(than)


def not_lower(value: float, than: float) -> bool:
    """Whether a number is the same as another, or above it."""
    return than - value <= SAME * abs(than)


def raised(value: float, than: float) -> bool:
    """Whether a number is above another and not the same, where a claim says of each number that it is raised or that it is not."""
    return not not_higher(value, than)


def lowered(value: float, than: float) -> bool:
    """Whether a number is below another and not the same, where a claim says of each number that it is lowered or that it is not."""
    return not not_lower(value, than)


def same(value: float, other: float) -> bool:
    """Whether two numbers are the same."""
    return abs(value - other) <= SAME * abs(other)


def alike(value: float, other: float) -> bool:
    """Whether two numbers are about the same."""
    return abs(value - other) <= ALIKE * abs(other)


def nearly_all(part: float) -> bool:
    """Whether a part, 0..1, is nearly the whole."""
    return part > 1 - FEW


def hardly_any(part: float) -> bool:
    """Whether a part, 0..1, is hardly anything."""
    return part < FEW


def some(part: float) -> bool:
    """Whether a part, 0..1, is more than hardly anything."""
    return part > FEW


def most(part: float) -> bool:
    """Whether a part, 0..1, is most of the whole."""
    return part > SIZE


def many_times(value: float, than: float) -> bool:
    """Whether a number is so many times another that it is of another size."""
    return value * SIZE > than


def of_size(value: float, published: float) -> bool:
    """Whether a positive number has a published size."""
    return SIZE * published <= value <= published / SIZE


def lacks(ours: float, published: float | None = None) -> bool:
    """Whether ours lacks an effect that a claim says is removed: it is less than a published size, or less than `EFFECT` where the
    paper gives no size. Both are in the same unit, per cent without a published size."""
    return ours < (EFFECT.percent if published is None else SIZE * published)
