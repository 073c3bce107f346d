"""Sweeps: a scenario at many points of a parameter space, on all cores or on a cluster; resumable.

Every point is written when it is finished, so a sweep that was killed continues where it stopped. Files in the folder of a
sweep: `manifest.json` (the swept keys and values), `points/` (one Parquet file per point), `failures.jsonl` (points that
failed twice), `sweep.parquet` (all points in order).
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from . import bounded, outputs
from ._native import BadInput, __version__
from .parallel import TRIES, Failure, each, each_on_cluster
from .results import Curve, _Table
from .running import AnyScenario, check_policies, run
from .scenario import Scenario, as_scenario

Space = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Point:
    """One point: its keys and values, and everything needed to run it on any machine."""

    index: int
    at: tuple[tuple[str, Any], ...]
    scenario: Scenario
    policies: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]

    def name(self) -> str:
        """A hash of its content."""
        policies = [_identity(policy) for policy in self.policies]
        content = json.dumps([self.at, policies, self.options, __version__])
        return hashlib.sha256((self.scenario.digest() + content).encode()).hexdigest()[:32]


def _identity(policy: Any) -> str:
    """A policy's name; for your own class its source, so that an edited class is a different policy."""
    if isinstance(policy, str):
        return policy
    try:
        return inspect.getsource(policy)
    except (OSError, TypeError):
        return f"{policy.__module__}.{policy.__qualname__}"


class SweepResult(_Table):
    """The results of a sweep: all points that succeeded, and those that failed."""

    def __init__(self, folder: Path, table: pa.Table, failures: list[dict[str, Any]]) -> None:
        self.folder = folder
        self._table = table
        self.failures = failures
        """Points that failed twice: `at`, `why`."""

    def to_arrow(self) -> pa.Table:
        """One row per point, policy and workload; the swept keys are the first columns; `scope` is `workload` or `system`."""
        return self._table

    def __repr__(self) -> str:
        return f"SweepResult({str(self.folder)!r}, rows={self._table.num_rows}, failures={len(self.failures)})"


def sweep(
    space: Space,
    scenario: AnyScenario,
    policies: Iterable[Any] = (),
    *,
    out: str | os.PathLike[str],
    engine: Any = None,
    jobs: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> SweepResult:
    """Runs a scenario at every point of `space` and returns one table.

    * `space`: a mapping of dotted keys to lists of values (every combination is a point), or a list of points, each a
      mapping of keys to values.
    * `options`: those of `run` (`seeds`, `sets`, `duration_s`, ...).
    * `out`: the folder of the sweep. `sweep` with the same arguments continues an earlier sweep in this folder; if the
      folder has another sweep, it raises `BadInput`.
    * `engine`: `None` for processes on this machine, or a `distributed.Client` (Dask), whose workers must have this package.

    A point that fails is run once more; if it fails again, it is in `failures`.
    """
    base = as_scenario(scenario).point()
    policies = tuple(policies)
    points = list(_points(space, base, policies, tuple(sorted(options.items()))))
    folder = Path(out)
    # Errors in policies and keys are raised before the first run and before the folder is created.
    check_policies(policies)
    for point in points:
        point.scenario.check()
    outputs.check_folder("out", folder)
    _claim(folder, base, points)
    missing = [point for point in points if not _file(folder, point).is_file()]
    try:
        if engine is None:
            failed = _local(folder, missing, jobs, progress)
        else:
            failed = _on_cluster(folder, missing, engine, progress)
    except KeyboardInterrupt:
        done = sum(_file(folder, point).is_file() for point in points)
        print(f"\nstopped; {folder} has {done} of {len(points)} points; the same call continues", file=sys.stderr)
        raise
    return _gather(folder, points, failed)


def _points(
    space: Space, base: Scenario, policies: tuple[Any, ...], options: tuple[tuple[str, Any], ...]
) -> Iterator[Point]:
    if isinstance(space, Mapping):
        for key, values in space.items():
            if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
                raise BadInput(f"the values of {key!r} are {values!r}; they must be a list")
        lists = [list(values) for values in space.values()]
        ats: Iterable[Mapping[str, Any]] = (
            dict(zip(space, combination, strict=True)) for combination in itertools.product(*lists)
        )
    else:
        ats = space
    for index, at in enumerate(ats):
        yield Point(index, tuple(at.items()), base.update(at), policies, options)


def _claim(folder: Path, base: Scenario, points: list[Point]) -> None:
    """Creates the folder of this sweep, or checks that it belongs to this sweep."""
    if not points:
        raise BadInput("the space has no point; give every key at least one value")
    content = {
        "schema": "waykeeper.sweep-folder/1",
        "version": __version__,
        "scenario": base.file,
        "points": [{"name": point.name(), "at": dict(point.at)} for point in points],
    }
    manifest = folder / "manifest.json"
    if manifest.is_file():
        try:
            held = json.loads(bounded.text(manifest, "a manifest"))
        except ValueError as why:
            raise BadInput(
                f"{manifest} is not the manifest of a sweep: {why}; choose an empty folder, or delete it"
            ) from why
        if [point["name"] for point in held["points"]] != [point["name"] for point in content["points"]]:
            raise BadInput(
                f"{folder} has another sweep ({len(held['points'])} points of {held['scenario']}, version "
                f"{held['version']}); choose an empty folder, or delete it"
            )
        return
    (folder / "points").mkdir(parents=True, exist_ok=True)
    outputs.write(manifest, json.dumps(content, indent=1, default=str))


def _file(folder: Path, point: Point) -> Path:
    return folder / "points" / f"{point.name()}.parquet"


def _local(folder: Path, points: list[Point], jobs: int | None, progress: bool | None) -> list[tuple[Point, Failure]]:
    failed: list[tuple[Point, Failure]] = []
    for turn in range(TRIES):
        failed = []
        for index, table in each(run_point, points, jobs=jobs, progress=progress, title="points"):
            if isinstance(table, Failure):
                failed.append((points[index], table))
            else:
                _store(folder, points[index], table)
        if not failed or turn == TRIES - 1:
            break
        points = [point for point, _ in failed]
    return failed


def _on_cluster(folder: Path, points: list[Point], client: Any, progress: bool | None) -> list[tuple[Point, Failure]]:
    failed = []
    for index, table in each_on_cluster(run_point, points, client, progress=progress, title="points"):
        if isinstance(table, Failure):
            failed.append((points[index], table))
        else:
            _store(folder, points[index], table)
    return failed


def run_point(point: Point) -> pa.Table:
    """Runs one point: one row per policy and workload, and one per policy for the socket."""
    result = run(point.scenario, point.policies, threads=1, progress=False, **dict(point.options))
    if isinstance(result, Curve):
        raise BadInput("the scenario of a point has `[[sweep]]` itself; move its keys into the space")
    workloads, systems = result.to_arrow(), result.systems()
    tables = [
        workloads.add_column(0, "scope", pa.array(["workload"] * workloads.num_rows)),
        systems.add_column(0, "scope", pa.array(["system"] * systems.num_rows)),
    ]
    table = pa.concat_tables(tables, promote_options="permissive")
    for position, (key, value) in enumerate(point.at):
        table = table.add_column(position, key, pa.array([value] * table.num_rows))
    return table


def _store(folder: Path, point: Point, table: pa.Table) -> None:
    outputs.write(_file(folder, point), _parquet(table))


def _parquet(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return out.getvalue().to_pybytes()


def _gather(folder: Path, points: list[Point], failed: list[tuple[Point, Failure]]) -> SweepResult:
    done = [path for path in (_file(folder, point) for point in points) if path.is_file()]
    tables = [pq.read_table(path) for path in done]
    table = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    outputs.write(folder / "sweep.parquet", _parquet(table))
    failures = [{"at": dict(point.at), "why": failure.why} for point, failure in failed]
    lines = "".join(json.dumps(failure, default=str) + "\n" for failure in failures)
    outputs.write(folder / "failures.jsonl", lines)
    return SweepResult(folder, table, failures)
