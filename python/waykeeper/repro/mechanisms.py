"""Mechanisms of the model, each with the scenario keys that switch it off and the claims named beforehand that it should move.

A mechanism is switched off in every case that its keys concern, the figures run again, and each claim is compared with the run in
which every mechanism is on. To add a mechanism, add an entry to `MECHANISMS`. This module must not depend on how runs are made or
kept, on a figure's checks, or on how an effect is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Protocol

from .. import _native
from ..catalog import chip, chips
from ..scenario import Scenario
from .claims import claims
from .engine import FigureRuns, scenario_of
from .figure import Figure
from .outcome import MEAN_ONLY, RANK, Outcome, outcomes
from .registry import not_simulable

SCHEMA = "waykeeper.mechanisms/1"

LEAST_CHANGE = 0.1
"""A number moved only if it changed by more than this part of the number with every mechanism on, and by more than its spread."""

REMOVED = object()
"""As the value of a key: the key is removed."""

Tables = dict[str, Any]


@dataclass(frozen=True)
class Off:
    """A scenario key and the value that switches a mechanism off. A scenario that the key does not concern stays as it is."""

    key: str
    """A dotted key; `*` is every element of a list, as in `workload.*.delay_ns`."""
    value: Any
    programs: tuple[str, ...] = ()
    """If given, the key concerns only workloads with these programs, or, outside of workloads, scenarios with such a workload."""
    concerns: Callable[[Tables], bool] = lambda tables: True
    """Whether the key concerns a scenario at all."""

    def row(self) -> dict[str, Any]:
        """Plain values; `set` is the key with its value as on the command line, or null if the key is removed."""
        setting = None if self.value is REMOVED else f"{self.key}={json.dumps(self.value)}"
        return {"key": self.key, "set": setting, "programs": list(self.programs)}

    def apply(self, tables: Tables) -> None:
        """Sets or removes the key in a scenario's tables, and in the phases that set it again."""
        if not self.concerns(tables):
            return
        mine = [one for one in tables.get("workload", ()) if not self.programs or one.get("program") in self.programs]
        if self.programs and not mine:
            return
        first, *rest = self.key.split(".")
        if rest and rest[0] == "*":
            elements = mine if first == "workload" else tables.get(first, ())
            for element in elements:
                self._put(element, rest[1])
                for phase in element.get("phase", ()):
                    if rest[1] in phase:
                        self._put(phase, rest[1])
        elif self.value is REMOVED:
            self._put(tables.get(first, {}), rest[0])
        else:
            self._put(tables.setdefault(first, {}), rest[0])

    def _put(self, table: Tables, key: str) -> None:
        if self.value is REMOVED:
            table.pop(key, None)
        else:
            table[key] = self.value


@dataclass(frozen=True)
class Mechanism:
    """A part of the model that can be switched off alone."""

    id: str
    about: str
    """What it is, in one line."""
    off: tuple[Off, ...]
    named: tuple[str, ...] = ()
    """Claims that it should move, named before the run; `*` is any text."""
    reason: str = ""
    """Why no claim is named, if none is."""

    def claims(self) -> list[str]:
        """The named claims, in the order of claims.csv. Raises `ValueError` for a name that is no claim's."""
        for pattern in self.named:
            if not any(fnmatchcase(name, pattern) for name in claims()):
                raise ValueError(f"mechanism {self.id}: it names {pattern}, but there is no such claim")
        return [name for name in claims() if any(fnmatchcase(name, pattern) for pattern in self.named)]

    def switch_off(self, scenario: Scenario) -> Scenario:
        """The scenario with the mechanism off; the same scenario if its keys do not concern it or have these values already."""
        tables = effective(scenario)
        changed = deepcopy(tables)
        for off in self.off:
            off.apply(changed)
        return scenario.update({key: value for key, value in changed.items() if value != tables.get(key)})


def _has_devices_and_inclusive_ways(tables: Tables) -> bool:
    """Whether devices write memory beside an LLC with inclusive ways, without which no copy is left there."""
    name = tables.get("chip", "gold-6140")
    inclusive = name not in chips() or chip(name)["llc"]["inclusive_ways"] is not None
    return inclusive and bool(tables.get("nic") or tables.get("storage"))


MECHANISMS = (
    Mechanism(
        "spin",
        "a packet program's wait ends at a whole number of readings of the clock, not at the exact time",
        (Off("workload.*.clock_cycles", 0, programs=("dpdk-t", "dpdk-nt", "fastclick")),),
        ("ISCA25-F7-*", "ISCA25-F14-1"),
    ),
    Mechanism(
        "rss-draw",
        "all runs of A4 have the same draw of flows to queues",
        (Off("nic.*.rss_seed", REMOVED),),
        ("ISCA25-F13A-6", "ISCA25-F13A-7", "ISCA25-F13A-10", "ISCA25-F13A-11", "ISCA25-F6-1", "ISCA25-F8A-1"),
    ),
    Mechanism(
        "first-of-burst",
        "DPDK-T's latency is that of one packet per core and millisecond, the first of a burst, so every queue counts the same",
        (Off("workload.*.latency_every_ms", REMOVED, programs=("dpdk-t", "dpdk-nt")),),
        ("ISCA25-F6-1", "ISCA25-F6-2", "ISCA25-F7-1", "ISCA25-F8A-1", "ISCA25-F8A-2"),
    ),
    Mechanism(
        "kernel-path",
        "iperf receives through the kernel: page pool, softirq, socket queue, copy, a sender with a window",
        (Off("workload.*.kernel_path", False, programs=("iperf",)),),
        ("CAL20-F1-3", "CAL20-F1-5"),
    ),
    Mechanism(
        "spare-unread",
        "copies in the inclusive ways spare data that a device wrote and no core has read",
        (Off("model.copies_spare_io", False, concerns=_has_devices_and_inclusive_ways),),
        (
            "ISCA25-F13B-1",
            "ISCA25-F13B-2",
            "ISCA25-F13A-8",
            "ISCA25-F13A-9",
            # Figs. 3b and 4: misses at way[9:10], the inclusive ways, beside DPDK-T.
            "ISCA25-F3B-1",
            "ISCA25-F3B-2",
            "ISCA25-F4-1",
            "ISCA25-F4-4",
        ),
    ),
    Mechanism(
        "dram-backlog",
        "accesses and device writes wait for what their memory channel could not move in time",
        (Off("model.dram_backlog", False),),
        ("MEMLOAD-F5.11-5", "MEMLOAD-S5.5-2", "CAL20-F1-*"),
    ),
    Mechanism(
        "prefetchers",
        "the cores' hardware prefetchers fetch lines of SPEC programs before they are needed",
        (Off("knobs.prefetchers", False, programs=("spec",)),),
        ("ISCA21-F12-*", "MEMLOAD-F5.7-5"),
    ),
)


def mechanisms() -> dict[str, Mechanism]:
    """All mechanisms by id."""
    return {mechanism.id: mechanism for mechanism in MECHANISMS}


def effective(scenario: Scenario) -> Tables:
    """A scenario's tables with the keys that were set, by the same rules as the compiled part's."""
    tables = scenario.to_dict()
    for key, value in scenario.changes:
        *path, last = [inside or outside for inside, outside in re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", key)]
        place: Any = tables
        for part in path:
            if isinstance(place, list):
                place = next(one for one in place if one.get("name") == part)
            else:
                place = place.setdefault(part, {})
        place[last] = json.loads(value)
    return tables


class Change(Enum):
    """What a mechanism does to a claim."""

    GAINED = "verdict gained"
    LOST = "verdict lost"
    NUMBER = "number"
    NONE = "none"
    NO_RUN = "none: it changes no run of the figure"
    FAILED = "not compared: a simulation failed"
    NOT_ASKED = "not compared: the figure was not run"
    NOT_SIMULABLE = "not compared: the claim cannot be simulated"


MOVED = (Change.GAINED, Change.LOST, Change.NUMBER)


@dataclass(frozen=True)
class Compared:
    """A claim with a mechanism off and with every mechanism on."""

    id: str
    where: str
    claim: str
    published: str
    named: bool
    change: Change
    off: str = ""
    """The verdict with the mechanism off."""
    off_ours: str = ""
    on: str = ""
    """The verdict with every mechanism on."""
    on_ours: str = ""

    @property
    def moved(self) -> bool:
        """Whether its verdict or its number changed."""
        return self.change in MOVED


@dataclass
class Effect:
    """What a mechanism does: the claims that moved, and all named ones."""

    mechanism: Mechanism
    changed: int
    """Number of cases that the mechanism's keys change."""
    cases: int
    compared: list[Compared] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def count(self, *changes: Change, named: bool | None = None) -> int:
        """The number of claims with one of these changes, of all or only of those that were named or were not."""
        return sum(one.change in changes for one in self.compared if named is None or one.named == named)

    def row(self) -> dict[str, Any]:
        """Plain values."""
        about = self.mechanism
        return {
            "id": about.id,
            "about": about.about,
            "off": [off.row() for off in about.off],
            "changed_cases": self.changed,
            "cases": self.cases,
            "named": len(about.claims()),
            "reason": about.reason,
            "named_moved": self.count(*MOVED, named=True),
            "others_moved": self.count(*MOVED, named=False),
            "gained": self.count(Change.GAINED),
            "lost": self.count(Change.LOST),
            "claims": [asdict(one) | {"change": one.change.value, "moved": one.moved} for one in self.compared],
            "failures": self.failures,
        }


class Runner(Protocol):
    """Runs figures, each scenario changed by `change` before it runs."""

    def __call__(
        self, figures: Sequence[Figure], *, change: Callable[[Scenario], Scenario] | None = None
    ) -> Mapping[str, FigureRuns]: ...


class Reference:
    """The figures with every mechanism on, with which each mechanism is compared."""

    def __init__(self, figures: Sequence[Figure], quick: bool, run: Runner) -> None:
        self._figures = figures
        self._run = run
        self._scenarios = {figure.id: [scenario_of(case) for case in figure.cases(quick)] for figure in figures}
        results = run(figures)
        self._outcomes = outcomes(figures, results)
        self.failures = _failures(results)
        self._failed = {name for name, runs in results.items() if runs.failures}

    def without(self, mechanism: Mechanism) -> Effect:
        """Runs the figures that a mechanism changes with it off, and compares every claim."""
        changed = {
            name: sum(mechanism.switch_off(scenario) != scenario for scenario in scenarios)
            for name, scenarios in self._scenarios.items()
        }
        touched = [figure for figure in self._figures if changed[figure.id]]
        results = self._run(touched, change=mechanism.switch_off) if touched else {}
        failed = self._failed | {name for name, runs in results.items() if runs.failures}
        return Effect(
            mechanism,
            sum(changed.values()),
            sum(map(len, self._scenarios.values())),
            compare(mechanism.claims(), self._outcomes, outcomes(touched, results), failed),
            _failures(results),
        )


def _failures(results: Mapping[str, FigureRuns]) -> list[str]:
    return [f"{figure_id}: {line}" for figure_id, runs in results.items() for line in runs.failures]


def compare(
    named: Sequence[str], on: Sequence[Outcome], off: Sequence[Outcome], failed: Collection[str] = ()
) -> list[Compared]:
    """The claims that moved, verdicts first, and then the named ones that did not.

    `on` are the outcomes with every mechanism on, `off` those of the figures that the mechanism changes, with it off. Claims of the
    figures `failed` are not compared.
    """
    before = {outcome.id: outcome for outcome in off}
    after = {outcome.id: outcome for outcome in on}
    found = [_compared(claim, claim in named, after.get(claim), before.get(claim), failed) for claim in claims()]
    order = list(Change)
    return sorted(
        (one for one in found if one.moved or one.named), key=lambda one: (order.index(one.change), not one.named)
    )


def _compared(name: str, named: bool, on: Outcome | None, off: Outcome | None, failed: Collection[str]) -> Compared:
    claim = claims()[name]
    head = {"id": name, "where": claim.where, "claim": claim.text, "published": claim.published(), "named": named}
    if on is None:
        return Compared(**head, change=Change.NOT_SIMULABLE if name in not_simulable() else Change.NOT_ASKED)
    if on.figure in failed:
        return Compared(**head, change=Change.FAILED)
    if off is None:
        off, change = on, Change.NO_RUN
    elif on.verdict != off.verdict:
        change = Change.GAINED if RANK[on.verdict] < RANK[off.verdict] else Change.LOST
    else:
        change = Change.NUMBER if _number_moved(on, off) else Change.NONE
    return Compared(**head, change=change, off=off.verdict, off_ours=_ours(off), on=on.verdict, on_ours=_ours(on))


def _ours(outcome: Outcome) -> str:
    """Our number or statements, and how many seeds alone show it if these are too few: the verdict may depend on that only."""
    few = [text for text in outcome.why.split("; ") if text.startswith(MEAN_ONLY)]
    return "; ".join([outcome.ours, *few])


def _number_moved(on: Outcome, off: Outcome) -> bool:
    """Whether either end of our number changed by more than its spread and more than `LEAST_CHANGE`, or exists on one side only."""
    spread = max(on.spread or 0.0, off.spread or 0.0)
    ends = ((on.ours_low, off.ours_low), (on.ours_high, off.ours_high))
    return any(_differs(new, old, spread) for new, old in ends)


def _differs(new: float | None, old: float | None, spread: float) -> bool:
    if new is None or old is None:
        return new is not old
    # Below 1e-9 it is rounding.
    return abs(new - old) > max(spread, LEAST_CHANGE * abs(new), 1e-9)


def document(effects: Sequence[Effect], figures: Sequence[str], quick: bool, seeds: int) -> dict[str, Any]:
    """The complete record; `figures` is empty if all were run."""
    return {
        "schema": SCHEMA,
        "version": _native.__version__,
        "quick": quick,
        "seeds": seeds,
        "figures": list(figures),
        "mechanisms": [effect.row() for effect in effects],
    }
