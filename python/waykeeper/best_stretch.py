"""What a trial of a search runs: the server as it is over the measured stretch, for a few seconds.

A static layout is judged by the measured stretch alone. What came before, an earlier phase or a program that had not started,
leaves no trace in the caches after tens of milliseconds, so a trial begins with the state of the last phase. This module must
not know the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .scenario import Scenario

WARMUP_S, MEASURE_S = 5.0, 10.0
"""Seconds of the server's clock before and in the measured stretch, where nothing in it has a time (ours)."""
SHORT_WARMUP_S, SHORT_MEASURE_S = 4.0, 6.0
"""The same of a trial: the best layouts are measured again for longer."""
SETTLED_S = 5.0
"""A change this long before the measured stretch has no effect in it."""
PATH_KEYS = ("capture", "trace", "profile", "fio")


@dataclass(frozen=True)
class Stretch:
    """A scenario to run, with a length; `None` is the scenario's own."""

    scenario: Scenario
    warmup_s: float | None = None
    duration_s: float | None = None

    def describe(self) -> dict[str, Any]:
        """Seconds of warm-up and of the measured stretch."""
        about = self.scenario.check()
        warmup_s = self.warmup_s if self.warmup_s is not None else about["duration_s"] - about["measure_s"]
        return {"warmup_s": warmup_s, "measure_s": about["measure_s"]}


def stretch(scenario: Scenario, short: bool = False) -> Stretch:
    """What a trial runs instead of the scenario: its last state, or the whole scenario if that state cannot be derived."""
    warmup_s, measure_s = (SHORT_WARMUP_S, SHORT_MEASURE_S) if short else (WARMUP_S, MEASURE_S)
    tables = None if scenario.changes else last_state(scenario.to_dict())
    if tables is None:
        return Stretch(scenario)
    unchanged = tables == scenario.to_dict()
    if not unchanged and scenario.folder is None and _has_paths(tables):
        return Stretch(scenario)
    state = scenario if unchanged else Scenario.from_dict(tables, scenario.folder)
    return Stretch(state.set("measure_s", measure_s), warmup_s, warmup_s + measure_s)


def last_state(tables: Mapping[str, Any]) -> dict[str, Any] | None:
    """The scenario without times, as it is over the measured stretch; `None` if something changes in that or shortly before,
    or if it has kinds of change that this function does not know."""
    until_s = tables.get("duration_s", 70) - tables.get("measure_s", 10) - SETTLED_S
    if tables.get("fault") or tables.get("knobs", {}).get("phase"):
        return None
    state = dict(tables)
    for kind in ("nic", "workload"):
        parts = []
        for table in tables.get(kind, []):
            part = {key: value for key, value in table.items() if key not in ("phase", "start_s")}
            if "stop_s" in part or "every_s" in part or table.get("start_s", 0) > until_s:
                return None
            for phase in sorted(table.get("phase", []), key=lambda phase: phase.get("at_s", 0)):
                if phase.get("at_s", 0) > until_s:
                    return None
                part.update({key: value for key, value in phase.items() if key != "at_s"})
            if not _plain_traffic(table):
                return None
            if "offered_part" in part:
                part["offered_gbps"] = table["offered_gbps"] * part.pop("offered_part")
            parts.append(part)
        if parts:
            state[kind] = parts
    return state


def _plain_traffic(table: Mapping[str, Any]) -> bool:
    """Whether the keys of the phases simply replace those of the table."""
    phases = table.get("phase", [])
    parts = any("offered_part" in phase for phase in phases)
    sizes = any(("packet_bytes" in phase and "packet_mix" in table) or "packet_mix" in phase for phase in phases)
    return not sizes and (not parts or (len(phases) == 1 and "offered_gbps" in table))


def _has_paths(tables: Mapping[str, Any]) -> bool:
    return any(key in table for kind in ("nic", "workload") for table in tables.get(kind, []) for key in PATH_KEYS)
