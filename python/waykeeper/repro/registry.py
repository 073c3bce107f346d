"""Finds the figures, which are all modules in `papers/<paper>/` with a subclass of `Figure`, and the claims that cannot be simulated.

To add a figure, add a file. `problems` checks that every claim is evaluated exactly once, with a strength and its reason.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from .claims import PAPERS, claims
from .figure import Figure
from .strength import Strength


def papers() -> list[str]:
    """Folders of the papers, in the order of publication."""
    return [folder for folder, _ in PAPERS.values()]


@cache
def figures() -> dict[str, Figure]:
    """All figures by id, ordered by paper and file name."""
    found: dict[str, Figure] = {}
    for paper in papers():
        for module in _modules(paper):
            for figure in _figures_of(module):
                if figure.id in found:
                    raise ValueError(f"{module.__name__}: figure {figure.id!r} exists twice")
                found[figure.id] = figure
    return found


@cache
def not_simulable() -> dict[str, str]:
    """Claims that cannot be simulated, each with the reason."""
    reasons: dict[str, str] = {}
    for paper in papers():
        module = importlib.import_module(f"{__package__}.papers.{paper}.not_simulable")
        for name, reason in module.REASONS.items():
            if name in reasons:
                raise ValueError(f"{module.__name__}: claim {name} is listed twice")
            reasons[name] = reason
    return reasons


def problems() -> list[str]:
    """Errors of the suite: claims that no figure evaluates, that several evaluate, that do not exist, or whose check has no
    reason for its strength."""
    known = claims()
    seen: dict[str, list[str]] = {name: [] for name in known}
    wrong = []
    places = [(judgement.claim, figure.id) for figure in figures().values() for judgement in figure.judgements()]
    places += [(name, "not_simulable") for name in not_simulable()]
    for name, place in places:
        if name not in seen:
            wrong.append(f"{place}: claim {name} does not exist")
        else:
            seen[name].append(place)
    for figure in figures().values():
        for judgement in figure.judgements():
            if not isinstance(judgement.strength, Strength) or len(judgement.because) < 10:
                wrong.append(f"{figure.id}: claim {judgement.claim}: no strength with a reason of at least 10 letters")
    for name, where in seen.items():
        if not where:
            wrong.append(f"claim {name} ({known[name].where}): no figure evaluates it")
        elif len(where) > 1:
            wrong.append(f"claim {name} is evaluated more than once: {' and '.join(where)}")
    return wrong


def _modules(paper: str) -> list[ModuleType]:
    package = importlib.import_module(f"{__package__}.papers.{paper}")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names if name != "not_simulable"]


def _figures_of(module: ModuleType) -> list[Figure]:
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Figure) and value.__module__ == module.__name__ and value.id
    ]
    return [kind() for kind in classes]
