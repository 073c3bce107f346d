"""Policies written in Python. They see the counters of each interval and set the same knobs as built-in policies.

    class Corner(waykeeper.Policy):
        name = "corner"

        def step(self, workloads, seen):
            return Plan(masks={w: 0x00c for w in workloads if seen.of(w).llc_miss_ratio > 0.5})

A policy must not use clocks, files or random numbers of its own, so that a run can be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Workload:
    """A running workload, as its owner declares it (A4 s5.1)."""

    id: int
    name: str
    high: bool
    """High priority: an HPW."""
    kind: str
    """`non-io`, `network-io` or `storage-io`."""
    cores: str
    ports: tuple[int, ...]
    """Root ports of the devices it uses."""


@dataclass(frozen=True)
class Server:
    """Properties of the server. Masks are integers; bit 0 is the rightmost way."""

    chip: str
    cores: int
    ways: int
    min_ways: int
    llc_bytes: int
    inclusive_ways: int | None
    dca_ways: int | None
    """Ways in which devices allocate after boot."""
    classes: int
    """Classes of service, the default group's included: so many different masks are possible."""
    devices: Mapping[str, tuple[int, ...]]
    """Root ports of every device, by its name."""
    raw: Mapping[str, Any] = field(repr=False)
    """The whole inventory."""

    @property
    def all_ways(self) -> int:
        """The mask of every way."""
        return (1 << self.ways) - 1


class Rates:
    """Counters of an interval, per second: attributes are numbers, or `None` if not available."""

    def __init__(self, readings: Mapping[str, Any]) -> None:
        self._readings = readings

    def __getattr__(self, name: str) -> float | None:
        try:
            reading = self._readings[name]
        except KeyError:
            known = ", ".join(self._readings)
            raise AttributeError(f"no counter {name!r}; known are {known} and the ratios of this class") from None
        return reading.get("value") if isinstance(reading, Mapping) else None

    def why_missing(self, name: str) -> str | None:
        """Why a counter has no value: `unavailable` (this time), `unsupported` (on this server) or `absent`; `None` if it has one."""
        reading = self._readings[name]
        return None if isinstance(reading, Mapping) else reading

    @property
    def ipc(self) -> float | None:
        """Instructions per cycle."""
        return _ratio(self.instructions, self.cycles)

    @property
    def llc_miss_ratio(self) -> float | None:
        """LLC misses / (hits + misses)."""
        return _share(self.llc_misses, self.llc_hits)

    @property
    def llc_hit_ratio(self) -> float | None:
        """LLC hits / (hits + misses)."""
        return _share(self.llc_hits, self.llc_misses)

    @property
    def mlc_miss_ratio(self) -> float | None:
        """MLC misses / (hits + misses)."""
        return _share(self.mlc_misses, self.mlc_hits)

    @property
    def dca_write_miss_ratio(self) -> float | None:
        """Device writes that found no line in the LLC / all device writes (of the socket)."""
        return _share(self.dca_write_misses, self.dca_write_hits)

    @property
    def dca_read_miss_ratio(self) -> float | None:
        """Device reads that memory served / all device reads (of the socket)."""
        return _share(self.dca_read_misses, self.dca_read_hits)


class Interval:
    """Counters and knobs of one monitoring interval."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    @property
    def at_s(self) -> float:
        """End of the interval on the host's clock, s."""
        return self.raw["to_ns"] / 1e9

    def of(self, workload: Workload | int) -> Rates:
        """A workload's counters; all `None` if it did not run at both the start and the end of the interval."""
        key = workload.id if isinstance(workload, Workload) else workload
        return Rates(self.raw["groups"].get(key, _NOT_SEEN))

    @property
    def socket(self) -> Rates:
        """The socket's counters: device writes and reads, memory traffic."""
        return Rates(self.raw["socket"])

    def port(self, port: int) -> Rates:
        """`inbound_bytes` and `outbound_bytes` of a root port. Raises `KeyError` if it does not exist."""
        return Rates(self.raw["ports"][port])

    def mask(self, workload: Workload | int) -> int | None:
        """The workload's allocation mask, as read back."""
        key = workload.id if isinstance(workload, Workload) else workload
        return _bits(self.raw["knobs"]["masks"].get(key))

    @property
    def dca_ways(self) -> int | None:
        """The ways in which devices may allocate, as read back."""
        return _bits(self.raw["knobs"]["dca_ways"])

    def dca(self, port: int) -> bool | None:
        """Whether DCA is on for a root port."""
        return self.raw["knobs"]["dca"].get(port)


@dataclass
class Plan:
    """Knobs to set; a knob that is left out keeps its value."""

    masks: Mapping[Workload | int, int] = field(default_factory=dict)
    """Allocation mask per workload: contiguous ways."""
    dca_ways: int | None = None
    """Ways in which devices may allocate (IIO_LLC_WAYS)."""
    dca: Mapping[int, bool] = field(default_factory=dict)
    """DCA on or off per root port."""

    def __post_init__(self) -> None:
        # Here the traceback has the line that made it.
        _knobs(self)


@dataclass
class Event:
    """An entry of the timeline: an action of the policy."""

    action: str
    """A stable name for programs that read the timeline."""
    text: str
    """One line of text for the reader."""
    workload: str | None = None
    causes: Sequence[tuple[str, float]] = ()
    """Pairs of a measured quantity and its value."""

    def __post_init__(self) -> None:
        _event(self)


@dataclass
class Decision:
    """The answer of a policy: knobs to set, its state, and events for the timeline."""

    plan: Plan = field(default_factory=Plan)
    state: str = ""
    events: Sequence[Event] = ()


class Policy:
    """Base class of your own policies. Every simulation creates a new instance, with the settings of `[policy.NAME]`."""

    name = "own"
    """The name of the policy. It must not be that of a built-in policy, nor `best`: its results would be taken for the other's."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def start(self, server: Server, workloads: list[Workload]) -> Decision | Plan | None:
        """Called once before the first interval; returns the initial knobs. `None` keeps them unchanged."""
        return None

    def step(self, workloads: list[Workload], seen: Interval) -> Decision | Plan | None:
        """Called after every interval with its counters and the running workloads. `None` changes nothing."""
        raise NotImplementedError("a policy needs `step(self, workloads, seen)`")

    def classes_changed(self, count: int) -> None:
        """Called before `step` when other programs have taken or released classes of service (`Server.classes`)."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Policy:
        """Creates the instance for a simulation; keys of the scenario's table are keyword arguments."""
        return cls(**settings)

    # The compiled part calls these with plain values.

    def _start(self, inventory: Mapping[str, Any], groups: list[Mapping[str, Any]]) -> dict[str, Any]:
        self._ports = {device["id"]: tuple(device["ports"]) for device in inventory["devices"]}
        return _decision(self.start(_server(inventory), self._workloads(groups)))

    def _step(self, groups: list[Mapping[str, Any]], seen: Mapping[str, Any]) -> dict[str, Any]:
        return _decision(self.step(self._workloads(groups), Interval(seen)))

    def _workloads(self, groups: list[Mapping[str, Any]]) -> list[Workload]:
        return [
            Workload(
                id=group["id"],
                name=group["name"],
                high=group["priority"] == "high",
                kind=group["kind"],
                cores=group["cores"],
                ports=tuple(port for device in group["devices"] for port in self._ports.get(device, ())),
            )
            for group in groups
        ]


_COUNTERS = (
    "instructions",
    "cycles",
    "mlc_hits",
    "mlc_misses",
    "llc_hits",
    "llc_misses",
    "occupancy_bytes",
)
_NOT_SEEN = {name: "absent" for name in _COUNTERS}


def _server(inventory: Mapping[str, Any]) -> Server:
    llc = inventory["llc"]
    return Server(
        chip=inventory["platform"]["chip"],
        cores=len(inventory["cores"]),
        ways=llc["ways"],
        min_ways=llc["min_ways"],
        llc_bytes=llc["bytes"],
        inclusive_ways=_bits(llc.get("inclusive_ways")),
        dca_ways=_bits(inventory.get("dca_ways_default")),
        classes=llc["clos_count"],
        devices={device["name"]: tuple(device["ports"]) for device in inventory["devices"]},
        raw=inventory,
    )


def _decision(answer: Decision | Plan | None) -> dict[str, Any]:
    if answer is None:
        answer = Decision()
    elif isinstance(answer, Plan):
        answer = Decision(plan=answer)
    elif not isinstance(answer, Decision):
        raise TypeError(f"the policy returned {answer!r}; it must return a Decision, a Plan or None")
    events = [_event(event) for event in answer.events]
    return {"plan": _knobs(answer.plan), "state": answer.state, "events": events}


def _knobs(plan: Plan) -> dict[str, Any]:
    return {
        "masks": {_id(workload): _hex(mask) for workload, mask in plan.masks.items()},
        "dca_ways": None if plan.dca_ways is None else _hex(plan.dca_ways),
        "dca": {int(port): bool(on) for port, on in plan.dca.items()},
        "rx_ring": {},
        "rx_burst": {},
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "action": event.action,
        "group": event.workload,
        "text": event.text,
        "causes": [{"what": what, "value": _finite(what, value), "limit": None} for what, value in event.causes],
    }


def _id(workload: Workload | int) -> int:
    if isinstance(workload, Workload):
        return workload.id
    if isinstance(workload, int):
        return workload
    raise TypeError(f"the key of a mask is {workload!r}; it must be a Workload or its id")


def _finite(what: str, value: float) -> float:
    """Results and recordings have no place for a number that is none."""
    if not math.isfinite(value):
        raise ValueError(f"the cause {what!r} is {value!r}; it must be a finite number")
    return float(value)


def _hex(mask: int) -> str:
    if isinstance(mask, bool) or not isinstance(mask, int) or not 0 <= mask < 1 << 32:
        raise TypeError(f"a mask is {mask!r}; it must be a number like 0x00c, with one bit per way")
    return hex(mask)


def _bits(mask: str | int | None) -> int | None:
    return int(mask, 0) if isinstance(mask, str) else mask


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _share(part: float | None, rest: float | None) -> float | None:
    return None if part is None or rest is None else _ratio(part, part + rest)
