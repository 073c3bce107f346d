"""Strength: how much a claim's check says about the model. Each `@claim` names one, with a reason of one line.

A check that restates a rule of the model passes whatever the model is worth; one that the model was free to miss is evidence.
The strength is a property of the check, not of the result: it is decided without looking at whether the check passes.
"""

from __future__ import annotations

from enum import Enum


class Strength(Enum):
    """The strength of a check; the headline score counts strong and medium ones."""

    STRONG = "strong"
    """A number or a pattern that the model was free to miss, and that no constant, workload or threshold was calibrated on."""
    MEDIUM = "medium"
    """An ordering, or a number with a wide band."""
    WEAK = "weak"
    """Arithmetic, a restated constant or rule, calibrated on the very number, a quantity that cannot move, or another finding
    once more."""


STRONG, MEDIUM, WEAK = Strength
