"""A figure of a paper: its grid of scenarios, what is drawn, and a function per claim.

Subclasses live in `papers/<paper>/`, one a file. A figure is pure: it names runs and looks at results; it must not know
how runs are made, how often, or what a verdict is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..results import Run
from .finding import Finding

Judge = Callable[[Any, "Runs"], Finding]


@dataclass(frozen=True)
class Case:
    """One point of a figure's grid."""

    key: Hashable
    """Its name within the figure: an int, a text or a tuple of them."""
    scenario: str | Mapping[str, Any]
    """A built-in scenario, or a dictionary as its TOML would give."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys, as in `waykeeper run --set`."""
    policies: Sequence[str] = ("none",)
    duration_s: float | None = None
    warmup_s: float | None = None
    sets: str = "1/32"
    search: str | None = None
    """`msl` or `zero-loss`: look for the highest load instead of running at one."""
    nic: str | None = None
    """The NIC that a search loads."""


@dataclass(frozen=True)
class Series:
    """A curve of ours."""

    label: str
    x: Sequence[Any]
    y: Sequence[float | None]
    spread: Sequence[float | None] = ()
    """Standard deviation over the seeds at each point; the report fills it in."""


@dataclass(frozen=True)
class Points:
    """Published points."""

    label: str
    x: Sequence[Any]
    y: Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """One set of axes. Categories (texts on the x axis) are drawn as bars, numbers as lines."""

    title: str
    x: str
    """Label of the x axis, with its unit."""
    y: str
    series: Sequence[Series] = ()
    published: Sequence[Points] = ()
    log_x: bool = False
    log_y: bool = False


class CaseRun(Run):
    """A case's result. With one policy its numbers are the run's own: `run.system`, `run.workload("fio")`."""

    msl_gbps: float | None = None
    """The highest load, of a case that searches."""

    def _only(self) -> Any:
        policies = self.policies
        if len(policies) != 1:
            raise KeyError(f"this run has policies {', '.join(policies)}; say which: run.policy(name)")
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
        """What the only policy did."""
        return self._only().decisions


class Runs:
    """Results of a figure's cases by key, of one seed or as means over seeds."""

    def __init__(self, runs: Mapping[Hashable, CaseRun]) -> None:
        self._runs = dict(runs)

    def __getitem__(self, key: Hashable) -> CaseRun:
        if key not in self._runs:
            raise KeyError(f"no case {key!r}; there are {', '.join(map(repr, self._runs))}")
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
    """A claim's function, and what is known about why it may not come out."""

    claim: str
    judge: Judge
    why: str
    each_seed: bool


def claim(name: str, why: str = "", each_seed: bool = False) -> Callable[[Judge], Judge]:
    """Marks a method as the one that looks at a claim. `why` is the best explanation if it does not come out.

    A claim is judged on the means over seeds; with `each_seed` on every seed alone, and the verdict of most of them counts:
    for what a mean would smooth away, fluctuation for example.
    """

    def mark(judge: Judge) -> Judge:
        marks = list(getattr(judge, "_claims", ()))
        judge._claims = [*marks, (name, why, each_seed)]  # type: ignore[attr-defined]
        return judge

    return mark


class Figure:
    """A figure or table of a paper, or what is said in its text."""

    id = ""
    """`paper/name`, as people select it."""
    title = ""
    assumes: Sequence[str] = ()
    """What was assumed where the paper is silent or the model has it differently."""

    def cases(self, quick: bool) -> Iterable[Case]:
        """The grid; `quick` asks for a smaller one on which every claim can still be judged."""
        return ()

    def panels(self, runs: Runs) -> Iterable[Panel]:
        """What is drawn."""
        return ()

    def judgements(self) -> list[Judgement]:
        """Every claim's function, in the order they are written."""
        found = []
        for name in vars(type(self)):
            member = getattr(type(self), name)
            for claim_name, why, each_seed in getattr(member, "_claims", ()):
                found.append(Judgement(claim_name, member, why, each_seed))
        return found
