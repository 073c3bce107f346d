"""Mistakes in a figure's own code: an exception that a check or a panel raised, with the place.

A mistake is never a verdict: it ends the command with an error. This module must not depend on figures or results.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mistake:
    """One of them."""

    where: str
    """The figure, and its check or panel."""
    why: Exception

    def __str__(self) -> str:
        at = traceback.extract_tb(self.why.__traceback__)[-1]
        return f"{self.where}: {type(self.why).__name__}: {self.why} ({Path(at.filename).name}:{at.lineno})"


class Mistakes(Exception):
    """All mistakes of a run of the suite; the first one is the cause."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = list(mistakes)
        self.__cause__ = mistakes[0].why
