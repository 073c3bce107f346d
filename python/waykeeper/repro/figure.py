"""A figure of a paper: its grid of scenarios, its panels, and one function per claim.

Subclasses are in `papers/<paper>/`, one per file. A figure only names runs and evaluates their results; it must not depend
on how or how often runs are made, or on verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .._native import metric_names
from ..results import Metrics, PolicyRun, Run
from .finding import CaseFailed, Finding, NotAvailable
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


class Given(Metrics):
    """Numbers of a run, for checks: where the model gives none, `NotAvailable` is raised and not `None` returned.

    `get` returns `None` there. A name that is no number's raises `KeyError`.
    """

    def __init__(self, values: Mapping[str, Any], of: str) -> None:
        super().__init__(values)
        self._of = of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise NotAvailable(f"the model gives no {name} of {self._of}")
        return value

    def __contains__(self, name: object) -> bool:
        return self._values.get(name) is not None  # type: ignore[call-overload]

    def get(self, name: str, default: Any = None) -> Any:
        """The number, or `default` where the model gives none."""
        if name not in self._values and name not in _metrics():
            raise KeyError(f"no number is called {name!r}")
        value = self._values.get(name)
        return default if value is None else value


@cache
def _metrics() -> frozenset[str]:
    return frozenset(metric_names())


class CasePolicy(PolicyRun):
    """The results of a case under one policy."""

    def __init__(self, run: PolicyRun, case: str) -> None:
        super().__init__(run.name, run._values)
        self._case = case

    def workload(self, name: str) -> Given:
        return Given(super().workload(name), f"{name} in {self._case}")

    @property
    def workloads(self) -> dict[str, Given]:  # type: ignore[override]
        return {name: self.workload(name) for name in super().workloads}

    @property
    def system(self) -> Given:
        return Given(super().system, f"the socket in {self._case}")


class CaseRun(Run):
    """The result of a case. If it has only one policy, its numbers are attributes of the run: `run.system`, `run.workload("fio")`."""

    def __init__(self, values: dict[str, Any], key: Hashable = None) -> None:
        super().__init__(values)
        self._case = f"case {key!r}"

    @property
    def msl_gbps(self) -> float:
        """The highest load, if the case is a search. Raises `NotAvailable` if even the lowest load is too high."""
        found = self._values["msl_gbps"]
        if found is None:
            raise NotAvailable(f"{self._case}: even the lowest load that was tried is too high")
        return found

    @property
    def policies(self) -> dict[str, PolicyRun]:
        return {name: CasePolicy(run, self._case) for name, run in super().policies.items()}

    def policy(self, name: str) -> CasePolicy:
        return CasePolicy(super().policy(name), self._case)

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
    """Results of a figure's cases by key, for one seed or as means over seeds.

    Who asks for a case that failed, or for all keys where one failed, gets `CaseFailed`: a check of a part of the grid would not
    be the check of the claim. An unknown key raises `KeyError`.
    """

    def __init__(self, runs: Mapping[Hashable, CaseRun], failed: Mapping[Hashable, str] | None = None) -> None:
        self._runs = dict(runs)
        self._failed = dict(failed or {})

    def __getitem__(self, key: Hashable) -> CaseRun:
        if key in self._failed:
            raise CaseFailed(f"case {key!r} failed: {self._failed[key]}")
        if key not in self._runs:
            raise KeyError(f"no case {key!r}; known are {', '.join(map(repr, self._runs))}")
        return self._runs[key]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._runs or key in self._failed

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._runs) + len(self._failed)

    def keys(self) -> list[Any]:
        """Keys of the cases, in order."""
        for key in self._failed:
            self[key]
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
