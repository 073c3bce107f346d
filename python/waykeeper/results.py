"""Results of runs. Keys and units are those of docs/results-schema.md; a value that is not available is `None`, never 0.

Tables are Arrow tables, which convert to pandas and polars. This module must not depend on how a run is made.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import pyarrow as pa
import pyarrow.csv

from . import _native, outputs
from .arrow import table


class Metrics(Mapping[str, Any]):
    """Numbers by name, as attributes and as keys: `workload.ipc`, `workload["ipc"]`. An absent one is `None`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._values.get(name)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self._values)!r})"


class PolicyRun:
    """The results under one policy."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self._values = values

    def workload(self, name: str) -> Metrics:
        """The numbers of a workload. Raises `KeyError` with the known names."""
        return Metrics(_pick(self._values["workloads"], name, "workload"))

    @property
    def workloads(self) -> dict[str, Metrics]:
        """The numbers of all workloads, in the scenario's order."""
        return {name: Metrics(values) for name, values in self._values["workloads"].items()}

    def group(self, name: str) -> Metrics:
        """`HPW` or `LPW`: the mean ratio of its workloads."""
        return Metrics(_pick(self._values.get("groups", {}), name, "group"))

    @property
    def system(self) -> Metrics:
        """The numbers of the whole socket."""
        return Metrics(self._values["system"])

    @property
    def evictions(self) -> list[dict[str, Any]]:
        """Who evicted whose lines, and why: one entry per evictor, owner and reason, the most lines first."""
        return self._values.get("evictions", [])

    @property
    def settled_s(self) -> float | None:
        """Time at which the policy settled, in seconds of the server's clock."""
        return self._values.get("settled_s")

    @property
    def regret(self) -> dict[str, Any] | None:
        """How far the policy stays below the best static layout; `None` unless the policy `best` was run too."""
        return self._values.get("regret")

    @property
    def worth(self) -> dict[str, Any] | None:
        """What the policy is worth as its control loop knows it: progress since the state as found.

        `hpw`, `lpw` and each of `workloads` have `ratio` and `error`; `from` says how it is known. A key without a value is absent.
        """
        return self._values.get("worth")

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The decisions of the policy, in order of time."""
        return self._values.get("decisions", [])

    @property
    def way_map(self) -> list[dict[str, Any]]:
        """The allocation of the ways, in order of time."""
        return self._values.get("way_map", [])

    def __repr__(self) -> str:
        return f"PolicyRun({self.name!r}, workloads={list(self._values['workloads'])})"


class WayMap:
    """The allocation of the ways over time under a policy; shown as a picture in a notebook."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as an SVG file."""
        outputs.write(path, self.svg)


class _Table:
    """Base of results that have an Arrow table."""

    def to_arrow(self) -> pa.Table:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table as a polars.DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class Run(_Table):
    """The result of a run: `waykeeper.run/2`."""

    def __init__(self, values: dict[str, Any], text: str | None = None, series: str | None = None) -> None:
        self._values = values
        self._text = text
        self._series = series

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return self._values["scenario"]

    @property
    def head(self) -> dict[str, Any]:
        """Description of the run: version, scenario, chip, seeds, sets, times."""
        return {key: value for key, value in self._values.items() if key != "policies"}

    @property
    def policies(self) -> dict[str, PolicyRun]:
        """The results of all policies, in the requested order."""
        return {name: PolicyRun(name, values) for name, values in self._values["policies"].items()}

    def policy(self, name: str) -> PolicyRun:
        """The results of one policy. Raises `KeyError` with the known names."""
        return PolicyRun(name, _pick(self._values["policies"], name, "policy"))

    def to_arrow(self) -> pa.Table:
        """One row per policy and workload with all its numbers; ratios are 0..1."""
        rows = [
            {"policy": policy, "workload": name, **_flat(values)}
            for policy, result in self._values["policies"].items()
            for name, values in result["workloads"].items()
        ]
        return table(rows)

    def systems(self) -> pa.Table:
        """One row per policy with the numbers of the socket and the group means."""
        rows = []
        for policy, result in self._values["policies"].items():
            row = {"policy": policy, **_flat(result["system"])}
            for group, values in result.get("groups", {}).items():
                row[f"{group.lower()}_performance_ratio"] = values.get("performance_ratio")
            row["settled_s"] = result.get("settled_s")
            rows.append(row)
        return table(rows)

    def evictions(self) -> pa.Table:
        """One row per policy, evictor (`by`), owner of the lines (`of`) and reason."""
        results = self._values["policies"].items()
        rows = [{"policy": policy, **entry} for policy, result in results for entry in result.get("evictions", [])]
        return table(rows)

    def timeseries(self) -> pa.Table:
        """The counters in each interval: one row per policy, interval and workload, and one for the socket.

        Raises `ValueError` for a result that was loaded from JSON, which does not contain the time series.
        """
        if self._series is None:
            raise ValueError(
                "this result has no time series; only a result of `run` has one, not a result that was loaded from JSON"
            )
        return pyarrow.csv.read_csv(io.BytesIO(self._series.encode()))

    def way_map(self, policy: str) -> WayMap:
        """The allocation of the ways over time under a policy. Raises `BadInput` for a policy that was not run."""
        return WayMap(_native.way_map_svg(self.to_json(), policy))

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report page as HTML; also written to `path` if given."""
        page = _native.report_html(self.to_json())
        if path is not None:
            outputs.write(path, page)
        return page

    def to_json(self) -> str:
        """The result as `waykeeper run --json` prints it."""
        return self._text if self._text is not None else json.dumps(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        mine, theirs = dict(self._values), dict(other._values)
        mine.pop("wall_s", None)
        theirs.pop("wall_s", None)
        return mine == theirs

    def __repr__(self) -> str:
        return f"Run({self.scenario!r}, policies={list(self._values['policies'])}, seeds={self._values['seeds']})"

    def _repr_html_(self) -> str:
        names = list(self._values["policies"])
        cells = []
        first = self._values["policies"][names[0]] if names else {"workloads": {}}
        for workload, values in first["workloads"].items():
            ratios = [self._ratio(name, "workloads", workload) for name in names]
            kind = "HPW" if values["priority"] == "high" else "LPW"
            cells.append(f"<tr><td>{escape(workload)}</td><td>{kind}</td>{''.join(ratios)}</tr>")
        for group in ("HPW", "LPW"):
            if any(group in self._values["policies"][name].get("groups", {}) for name in names):
                ratios = [self._ratio(name, "groups", group) for name in names]
                cells.append(f"<tr><th>{group} mean</th><td></td>{''.join(ratios)}</tr>")
        heads = "".join(f"<th>{escape(name)}</th>" for name in names)
        maps = "".join(
            f"<details><summary>way map under {escape(name)}</summary>{self.way_map(name).svg}</details>"
            for name in names
            if len(self._values["policies"][name].get("way_map", [])) > 1
        )
        baseline = escape(str(self._values.get("baseline", "-")))
        return (
            f"<b>{escape(self.scenario)}</b>: performance relative to {baseline} (higher is better)"
            f"<table><tr><th>workload</th><th></th>{heads}</tr>{''.join(cells)}</table>{maps}"
        )

    def _ratio(self, policy: str, scope: str, name: str) -> str:
        values = self._values["policies"][policy].get(scope, {}).get(name, {})
        ratio = values.get("performance_ratio")
        return f"<td>{ratio:.2f}</td>" if ratio is not None else "<td>-</td>"


class Curve(_Table):
    """The result of a scenario that sweeps keys: `waykeeper.sweep/2`."""

    def __init__(self, values: dict[str, Any], text: str) -> None:
        self._values = values
        self._text = text

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return self._values["scenario"]

    @property
    def keys(self) -> list[str]:
        """The swept keys, outermost first."""
        return [key["key"] for key in self._values["keys"]]

    @property
    def points(self) -> list[tuple[dict[str, Any], Run]]:
        """All combinations of values, each with its run."""
        return [(point["at"], Run(point["run"])) for point in self._values["points"]]

    def to_arrow(self) -> pa.Table:
        """One row per point, policy and workload; the swept keys are the first columns."""
        rows = []
        for point in self._values["points"]:
            for policy, result in point["run"]["policies"].items():
                for name, values in result["workloads"].items():
                    rows.append({**point["at"], "policy": policy, "workload": name, **_flat(values)})
        return table(rows)

    def to_json(self) -> str:
        """The result as `waykeeper run --json` prints it."""
        return self._text

    def __repr__(self) -> str:
        return f"Curve({self.scenario!r}, keys={self.keys}, points={len(self._values['points'])})"


class Load:
    """The highest load that a scenario sustains: `waykeeper.msl/1`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.values: dict[str, Any] = json.loads(text)

    @property
    def knees(self) -> list[dict[str, Any]]:
        """Per sweep point and policy: `msl_gbps` (absent if even the lowest tested load is too high) and all probes."""
        return self.values["knees"]

    @property
    def gbps(self) -> float | None:
        """The load found by the first search, Gb/s; `None` if even the lowest tested load is too high."""
        return self.knees[0].get("msl_gbps")

    def to_json(self) -> str:
        """The result as `waykeeper run --find-msl --json` prints it."""
        return self._text

    def __repr__(self) -> str:
        return f"Load({self.values['scenario']!r}, gbps={self.gbps})"


def load(text: str, series: str | None = None) -> Run | Curve:
    """Reads the output of `waykeeper run --json`. Raises `BadInput` for any other text."""
    try:
        values = json.loads(text)
        schema = values.get("schema")
    except (ValueError, AttributeError) as why:
        raise _native.BadInput(f"this text is not the result of a run: {why}") from why
    if schema == "waykeeper.run/2":
        return Run(values, text, series)
    if schema == "waykeeper.sweep/2":
        return Curve(values, text)
    raise _native.BadInput(
        f"the results' schema is {schema!r}; this version reads waykeeper.run/2 and waykeeper.sweep/2"
    )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of a workload or the system, each with its spread and its error of sampling."""
    row = {key: value for key, value in values.items() if key not in ("spread", "sampling_error")}
    row.update({f"{key}_sd": value for key, value in values.get("spread", {}).items()})
    errors = values.get("sampling_error", {})
    row.update({f"{key}_sampling_error": value for key, value in errors.items()})
    return row


def _pick(values: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in values:
        raise KeyError(f"no {what} {name!r}; known are {', '.join(values) or 'none'}")
    return values[name]
