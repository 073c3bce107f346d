"""Static layouts of a server as numbers that a search draws: which layouts there are, and good ones to start from.

This module must not know the search.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ._native import BadInput, RunFailed
from .catalog import chip, chips
from .results import Run
from .running import run
from .scenario import Scenario

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STARTING_POLICIES = ("isolate", "a4-d", "iat", "waykeeper", "waykeeper-search", "waykeeper-twin")
"""Policies whose last masks are starting points; a policy that refuses the scenario, or that this version does not
have, is left out."""


@dataclass(frozen=True)
class Layout:
    """Masks by workload, DCA ways (`None`: unchanged) and DCA by device; masks are texts as in a scenario."""

    masks: Mapping[str, str] = field(default_factory=dict)
    dca_ways: str | None = None
    dca: Mapping[str, bool] = field(default_factory=dict)

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Layout:
        """From the settings of `fixed`."""
        return Layout(settings.get("masks", {}), settings.get("dca_ways"), settings.get("dca", {}))

    def settings(self) -> dict[str, Any]:
        """The settings of the policy `fixed`."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Space:
    """The layouts of a server: one run of ways per workload, leftmost ways for devices, DCA per device.

    A server with more workloads than classes of service has zones, one per class, and each workload is in a zone.
    """

    ways: int
    min_ways: int
    workloads: tuple[str, ...]
    zones: int
    """0: a mask per workload."""
    devices: tuple[str, ...]
    """Devices whose DCA can be switched."""
    most_dca_ways: int
    """0: the DCA ways cannot be set."""

    @staticmethod
    def of(scenario: Scenario) -> Space:
        """The space of a scenario's server."""
        about, tables = scenario.check(), scenario.to_dict()
        spec = _chip(scenario, about["chip"], tables)
        llc, dca = spec["llc"], spec.get("dca")
        names = tuple(workload["name"] for workload in about["workloads"])
        # One class is the kernel's default group, which cores without a workload use.
        classes = llc["clos"] - 1
        nearby = [
            device["name"] for kind in ("nic", "storage") for device in tables.get(kind, []) if not device.get("remote")
        ]
        switchable = bool(dca and dca.get("port_switch") and llc.get("dca_ways"))
        settable = bool(dca and dca.get("acts") and llc.get("dca_ways") and nearby)
        zones = 0 if len(names) <= classes else classes
        return Space(
            llc["ways"],
            llc["min_ways"],
            names,
            zones,
            tuple(nearby) if switchable else (),
            llc["ways"] if settable else 0,
        )

    def suggest(self, trial: Any) -> Layout:
        """A layout from an Optuna trial."""
        masks = {}
        owners = [f"zone{index}" for index in range(self.zones)] or list(self.workloads)
        runs = {owner: self._suggest_run(trial, owner) for owner in owners}
        for name in self.workloads:
            owner = f"zone{trial.suggest_int(f'{name} zone', 0, self.zones - 1)}" if self.zones else name
            masks[name] = runs[owner]
        dca = {device: trial.suggest_categorical(f"{device} dca", [True, False]) for device in self.devices}
        ways = None
        if self.most_dca_ways:
            ways = self._leftmost(trial.suggest_int("dca ways", 2, self.most_dca_ways))
        return Layout(masks, ways, dca)

    def _suggest_run(self, trial: Any, owner: str) -> str:
        first = trial.suggest_int(f"{owner} first", 0, self.ways - self.min_ways)
        count = trial.suggest_int(f"{owner} ways", self.min_ways, self.ways)
        return hex(_run(first, min(count, self.ways - first)))

    def _leftmost(self, count: int) -> str:
        return hex(_run(self.ways - count, count))

    def parameters(self, layout: Layout) -> dict[str, Any]:
        """The numbers that `suggest` would have drawn for a layout; a mask with holes becomes the run around it."""
        values: dict[str, Any] = {}
        distinct: list[str] = []
        for name in self.workloads:
            mask = layout.masks.get(name, hex(_run(0, self.ways)))
            owner = name
            if self.zones:
                if mask not in distinct and len(distinct) < self.zones:
                    distinct.append(mask)
                index = distinct.index(mask) if mask in distinct else 0
                values[f"{name} zone"] = index
                owner = f"zone{index}"
                mask = distinct[index]
            values.update(self._parameters_of_run(owner, mask))
        for index in range(len(distinct), self.zones):
            values.update(self._parameters_of_run(f"zone{index}", hex(_run(0, self.ways))))
        values.update({f"{device} dca": layout.dca.get(device, True) for device in self.devices})
        if self.most_dca_ways:
            ways = int(layout.dca_ways, 16).bit_count() if layout.dca_ways else 2
            values["dca ways"] = min(max(ways, 2), self.most_dca_ways)
        return values

    def neighbour(self, values: Mapping[str, Any], draw: Random) -> dict[str, Any]:
        """Numbers of a layout that differs from the given one in one or two of them."""
        changed = dict(values)
        for name in draw.sample(sorted(changed), min(len(changed), draw.choice((1, 1, 2)))):
            if name.endswith(" dca"):
                changed[name] = not changed[name]
                continue
            low, high = self._bounds(name)
            nearby = changed[name] + draw.choice((-3, -2, -1, 1, 2, 3))
            # Any other zone is as near; ways are near in number.
            changed[name] = draw.randint(low, high) if name.endswith(" zone") else min(max(nearby, low), high)
        return changed

    def _bounds(self, name: str) -> tuple[int, int]:
        if name.endswith(" zone"):
            return 0, self.zones - 1
        if name == "dca ways":
            return 2, self.most_dca_ways
        return (0, self.ways - self.min_ways) if name.endswith(" first") else (self.min_ways, self.ways)

    def _parameters_of_run(self, owner: str, text: str) -> dict[str, Any]:
        mask = int(text, 16)
        first = min((mask & -mask).bit_length() - 1, self.ways - self.min_ways)
        return {f"{owner} first": first, f"{owner} ways": max(mask.bit_length() - first, self.min_ways)}


def _run(first: int, count: int) -> int:
    return ((1 << count) - 1) << first


def _chip(scenario: Scenario, name: str, tables: Mapping[str, Any]) -> Mapping[str, Any]:
    changed = dict(scenario.changes).get("chip")
    named = changed.strip('"') if changed else tables.get("chip", name)
    if named in chips():
        return chip(named)
    return tomllib.loads((Path(scenario.folder or ".") / named).read_text(encoding="utf-8"))


def starts(scenario: Scenario, space: Space, sets: str) -> Iterator[Layout]:
    """Layouts to begin with: all ways for all, with and without DCA of each device; then the last masks of known policies."""
    everything = {name: hex(_run(0, space.ways)) for name in space.workloads}
    yield Layout(everything)
    for device in space.devices:
        yield Layout(everything, None, {device: False})
    for count in (4, 6):
        if space.most_dca_ways >= count:
            yield Layout(everything, space._leftmost(count))
    apart = hex(_run(0, space.ways - 2))
    yield Layout({name: apart for name in space.workloads})
    for policy in STARTING_POLICIES:
        try:
            result = run(scenario, [policy], sets=sets, threads=1, extrapolate=True, progress=False)
        except (BadInput, RunFailed):
            continue
        if not isinstance(result, Run):
            continue
        layout, off = last_layout(result, policy, space)
        yield layout
        if off:
            # The way map has ports, not devices: policies that turn DCA off do so for storage.
            arrays = {array["name"]: False for array in scenario.to_dict().get("storage", [])}
            yield Layout(layout.masks, layout.dca_ways, arrays)


def last_layout(result: Run, policy: str, space: Space) -> tuple[Layout, bool]:
    """Masks and DCA ways in force at the end of a run, and whether DCA was off at a port."""
    slices = result.policy(policy).way_map
    last = slices[-1] if slices else {}
    masks = {name: mask for name, mask in last.get("masks", {}).items() if name in space.workloads}
    return Layout(masks, last.get("dca_ways")), bool(last.get("dca_off_ports"))
