"""The daemon's recordings as Arrow tables, for Parquet, pandas, Polars or DuckDB.

    import pyarrow.parquet as pq
    import waykeeper as wk

    steps = wk.read_recording("/var/lib/waykeeper/recorder")
    pq.write_table(steps.tenants(), "tenants.parquet")

A value that a step does not have is null, never 0. This module must not know the loop or a policy; the format of a recording is that
of `crates/service/src/recorder/format.rs`.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ._native import BadInput
from .arrow import table

FORMAT = "waykeeper-recording"
VERSIONS = (1, 2)
SUFFIX = ".jsonl.zst"
LONGEST_LINE = 4 << 20
"""Bytes of the longest line that the daemon writes (`LINE_MOST`)."""


@dataclass(frozen=True)
class Recording:
    """The steps of a recording in their order; each has the header of its segment."""

    steps: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]

    def __len__(self) -> int:
        return len(self.steps)

    def tenants(self) -> pa.Table:
        """A row per step and tenant: counters as rates per second, ratios 0 to 1, mask and ways."""
        rows = []
        for header, step in self.steps:
            seen = step.get("seen") or {}
            masks = (seen.get("knobs") or step["record"]["knobs"]).get("masks", {})
            for tenant in step["groups"]:
                key = str(tenant["id"])
                rates = _values(seen.get("groups", {}).get(key))
                mask = masks.get(key)
                row = {
                    **_when(header, step),
                    "tenant": tenant["name"],
                    "priority": tenant["priority"],
                    "kind": tenant["kind"],
                    "mask": mask,
                    "ways": None if mask is None else int(mask, 16).bit_count(),
                    "llc_hit_ratio": _share(rates.get("llc_hits"), rates.get("llc_misses")),
                    "ipc": _over(rates.get("instructions"), rates.get("cycles")),
                }
                rows.append({**row, **{_rate(name): value for name, value in rates.items()}})
        return _table(rows)

    def devices(self) -> pa.Table:
        """A row per step and root port: bytes per second, and whether DCA is on."""
        rows = []
        for header, step in self.steps:
            seen = step.get("seen") or {}
            dca = (seen.get("knobs") or step["record"]["knobs"]).get("dca", {})
            for port in header["inventory"]["ports"]:
                key = str(port["id"])
                devices = header["inventory"]["devices"]
                names = [device["name"] for device in devices if port["id"] in device["ports"]]
                row = {
                    **_when(header, step),
                    "port": port["address"],
                    "devices": ", ".join(names),
                    "dca": dca.get(key),
                }
                rates = _values(seen.get("ports", {}).get(key))
                rows.append({**row, **{_rate(name): value for name, value in rates.items()}})
        return _table(rows)

    def socket(self) -> pa.Table:
        """A row per step: DCA hits and misses, memory traffic, DCA ways, and what the policy is worth."""
        rows = []
        for header, step in self.steps:
            seen = step.get("seen") or {}
            knobs = seen.get("knobs") or step["record"]["knobs"]
            rates = _values(seen.get("socket"))
            worth = step["record"].get("worth") or {}
            known = worth.get("known", {}) if isinstance(worth, Mapping) else {}
            row = {
                **_when(header, step),
                "dca_ways": knobs.get("dca_ways"),
                "dca_write_hit_ratio": _share(rates.get("dca_write_hits"), rates.get("dca_write_misses")),
            }
            for name in ("hpw", "lpw"):
                progress = known.get(name) or {}
                row[f"{name}_progress"] = progress.get("value")
                row[f"{name}_progress_error"] = progress.get("error")
            rows.append({**row, **{_rate(name): value for name, value in rates.items()}})
        return _table(rows)

    def decisions(self) -> pa.Table:
        """A row per decision: what the policy did, to which tenant, and why."""
        rows = []
        for header, step in self.steps:
            for event in step["record"]["events"]:
                causes = [f"{cause['what']} {cause['value']:.4g}" for cause in event.get("causes", ())]
                rows.append(
                    {
                        **_when(header, step),
                        "action": event["action"],
                        "tenant": event.get("group"),
                        "reason": event["text"],
                        "causes": "; ".join(causes),
                    }
                )
        return _table(rows)


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """The recording in a directory, or in one segment of it.

    A part that was cut off, as by kill -9, is left out with a warning. Raises `BadInput` for anything that is no recording.
    """
    path = Path(path)
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise BadInput(
            f"{path}: the directory has no recording; segments are named like 0000000001-20261122T085500Z{SUFFIX}"
        )
    steps: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    for file in files:
        steps.extend(_segment(file))
    return Recording(tuple(steps))


def _segment(file: Path) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Header and step of each line of a segment."""
    header: Mapping[str, Any] | None = None
    before: Mapping[str, Any] = {}
    try:
        for number, line in enumerate(_lines(file), 1):
            record = _object(file, number, line)
            if header is None:
                header = _header(file, record)
                continue
            # The daemon writes tenants when they change.
            step = {**record, **{key: record.get(key, before.get(key)) for key in ("groups", "groupings")}}
            if not isinstance(step.get("groups"), list) or not isinstance(step.get("record"), Mapping):
                raise BadInput(f"{file}:{number}: not a step of a recording")
            before = step
            yield header, step
    except OSError as why:
        if header is None:
            raise BadInput(f"{file}: {why}") from why
        warnings.warn(f"{file}: cut off after {before.get('step', 'the header')}: {why}", stacklevel=3)


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of a compressed file; a line that is cut off at its end is left out."""
    with pa.OSFile(os.fspath(file)) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
        rest = b""
        while part := stream.read(1 << 20):
            *whole, rest = (rest + part).split(b"\n")
            yield from whole
            if len(rest) > LONGEST_LINE:
                raise BadInput(f"{file}: a line is longer than {LONGEST_LINE} bytes")


def _object(file: Path, number: int, line: bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as why:
        raise BadInput(f"{file}:{number}: not JSON: {why}") from why
    if not isinstance(record, Mapping):
        raise BadInput(f"{file}:{number}: not a step of a recording")
    return record


def _header(file: Path, record: Mapping[str, Any]) -> Mapping[str, Any]:
    if record.get("format") != FORMAT:
        raise BadInput(f"{file}: the first line is not the header of a recording ({FORMAT})")
    if record.get("version") not in VERSIONS:
        raise BadInput(f"{file}: version {record.get('version')} is not supported; supported are 1 and 2")
    return record


def _when(header: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, Any]:
    return {"at": step["at"], "step": step["step"], "policy": header["policy"], "state": step["record"]["state"]}


def _values(readings: Mapping[str, Any] | None) -> dict[str, float]:
    """The readings that have a value."""
    found = (readings or {}).items()
    return {name: reading["value"] for name, reading in found if isinstance(reading, Mapping) and "value" in reading}


def _rate(name: str) -> str:
    """The column of a counter; an occupancy is a level, all others are rates."""
    return name if name == "occupancy_bytes" else f"{name}_per_s"


def _share(hits: float | None, misses: float | None) -> float | None:
    return None if hits is None or misses is None else _over(hits, hits + misses)


def _over(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as a table, with times as such."""
    made = table(rows)
    if not rows:
        return made
    # Microseconds, since Python's datetime has no more.
    at = made["at"].cast(pa.timestamp("ns", "UTC")).cast(pa.timestamp("us", "UTC"), safe=False)
    return made.set_column(0, "at", at)
