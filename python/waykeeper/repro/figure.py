"""A figure of a paper: its grid of scenarios, its panels, and one function per claim.

Subclasses are in `papers/<paper>/`, one per file. A figure only names runs and evaluates their results; it must not depend
on how or how often runs are made, or on verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..results import Run
from .finding import Finding
from .strength import Strength

Judge = Callable[[Any, "Runs"], Finding]


@dataclass(frozen=True)
class Case:
    """One point of a figure's grid."""

    key: Hashable
    """Its name within the figure: an int, a text or a tuple of these."""
    scenario: str | Mapping[str, Any]
    """The name of a built-in scenario, or a dictionary with the structure of its TOML file."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys, as in `waykeeper run --set`."""
    policies: Sequence[str] = ("none",)
    duration_s: float | None = None
    warmup_s: float | None = None
    sets: str = "1/32"
    search: str | None = None
    """`msl` or `zero-loss`: search for the highest load instead of running at one load."""
    nic: str | None = None
    """The NIC whose load a search varies."""


@dataclass(frozen=True)
class Series:
    """A curve of our results."""

    label: str
    x: Sequence[Any]
    y: Sequence[float | None]
    spread: Sequence[float | None] = ()
    """Standard deviation over the seeds at each point; the report adds it."""


@dataclass(frozen=True)
class Points:
    """Published points."""

    label: str
    x: Sequence[Any]
    y: Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """One set of axes. Texts on the x axis are drawn as bars, numbers as lines."""

    title: str
    x: str
    """Label of the x axis, with its unit."""
    y: str
    series: Sequence[Series] = ()
    published: Sequence[Points] = ()
    log_x: bool = False
    log_y: bool = False


class CaseRun(Run):
    """The result of a case. If it has only one policy, its numbers are attributes of the run: `run.system`, `run.workload("fio")`."""

    msl_gbps: float | None = None
    """The highest load, if the case is a search."""

    def _only(self) -> Any:
        policies = self.policies
        if len(policies) != 1:
            raise KeyError(f"this run has several policies ({', '.join(policies)}); select one with run.policy(name)")
        return next(iter(policies.values()))

    @property
    def system(self) -> Any:
        """The socket's numbers under the only policy."""
        return self._only().system

    @property
    def workloads(self) -> Any:
        """Every workload's numbers under the only policy."""
        return self._only().workloads

    def workload(self, name: str) -> Any:
        """A workload's numbers under the only policy."""
        return self._only().workload(name)

    @property
    def decisions(self) -> Any:
        """The decisions of the only policy."""
        return self._only().decisions


class Runs:
    """Results of a figure's cases by key, for one seed or as means over seeds."""

    def __init__(self, runs: Mapping[Hashable, CaseRun]) -> None:
        self._runs = dict(runs)

    def __getitem__(self, key: Hashable) -> CaseRun:
        if key not in self._runs:
            raise KeyError(f"no case {key!r}; known are {', '.join(map(repr, self._runs))}")
        return self._runs[key]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._runs

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def keys(self) -> list[Any]:
        """Keys of the cases, in order."""
        return list(self._runs)


@dataclass(frozen=True)
class Judgement:
    """A claim's function, how much its check says and why, and the explanation if the claim is not reproduced."""

    claim: str
    judge: Judge
    strength: Strength
    because: str
    why: str
    each_seed: bool


def claim(
    name: str, strength: Strength, because: str, *, why: str = "", each_seed: bool = False
) -> Callable[[Judge], Judge]:
    """Marks a method as the evaluation of a claim.

    `strength` is how much the check says about the model and `because` is the reason, in one line. `why` is the most likely
    explanation if the claim is not reproduced.

    A claim is evaluated on the means over seeds. With `each_seed` it is evaluated on every seed alone and the verdict that 4 of 5
    seeds reach counts; this is for properties that a mean hides, for example fluctuation.
    """

    def mark(judge: Judge) -> Judge:
        marks = list(getattr(judge, "_claims", ()))
        judge._claims = [*marks, (name, strength, because, why, each_seed)]  # type: ignore[attr-defined]
        return judge

    return mark


class Figure:
    """A figure or table of a paper, or the statements of its text."""

    id = ""
    """`paper/name`, the id on the command line."""
    title = ""
    assumes: Sequence[str] = ()
    """Assumptions where the paper gives no value or the model differs."""

    def cases(self, quick: bool) -> Iterable[Case]:
        """The grid; `quick` selects a smaller one on which every claim can still be evaluated."""
        return ()

    def panels(self, runs: Runs) -> Iterable[Panel]:
        """The panels of the drawing."""
        return ()

    def judgements(self) -> list[Judgement]:
        """The functions of all claims, in source order."""
        found = []
        for name in vars(type(self)):
            member = getattr(type(self), name)
            for claim_name, strength, because, why, each_seed in getattr(member, "_claims", ()):
                found.append(Judgement(claim_name, member, strength, because, why, each_seed))
        return found
