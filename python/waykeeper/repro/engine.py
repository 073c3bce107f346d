"""Runs figures: every case with every seed. A run that several figures need is made once.

`run` and `find_load` keep each simulation that ends in a folder, and take it from there if all that determines it is the same
(`keep`, as `waykeeper run --resume` does). So an interrupted suite continues where it stopped, and a figure does not run again
when only its text has changed. This module must not depend on how a figure uses its runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .._native import BadInput
from ..parallel import Failure, each, each_on_cluster
from ..results import Run
from ..running import find_load, run
from ..scenario import Scenario, as_scenario
from .figure import Case, CaseRun, Figure, Runs

SEEDS = 5
"""Seeds of a full run: enough for a standard deviation of random results."""
QUICK_SEEDS = 2


@dataclass(frozen=True)
class Job:
    """One simulation or one search."""

    scenario: Scenario
    policies: tuple[str, ...]
    seed: int
    sets: str
    duration_s: float | None
    warmup_s: float | None
    search: str | None
    nic: str | None


@dataclass
class FigureRuns:
    """A figure's results: means over the seeds, and each seed's."""

    mean: Runs
    seeds: list[Runs]
    failures: list[str]
    """Cases that failed, one line each."""


def run_figures(
    figures: Sequence[Figure],
    *,
    quick: bool,
    seeds: int | None = None,
    jobs: int | None = None,
    cache: Path,
    progress: bool | None = None,
    change: Callable[[Scenario], Scenario] | None = None,
    engine: Any = None,
) -> dict[str, FigureRuns]:
    """Runs all cases of `figures`; results by figure id. `cache` is the folder that keeps runs.

    `engine` is `None` for `jobs` processes on this machine, or a `distributed.Client` (Dask) whose workers share `cache`.

    `change` changes every scenario after its case's overrides. A case that it leaves as it is has the same result, which is kept
    once.
    """
    count = seeds or (QUICK_SEEDS if quick else SEEDS)
    cases = {figure.id: list(figure.cases(quick)) for figure in figures}
    for figure_id, mine in cases.items():
        keys = [case.key for case in mine]
        doubled = {key for key in keys if keys.count(key) > 1}
        if doubled:
            raise ValueError(f"{figure_id}: case {doubled.pop()!r} exists twice")
    wanted: dict[tuple[str, Hashable, int], Job] = {}
    for figure_id, mine in cases.items():
        for case in mine:
            first = _job(case, 1, change)
            for seed in range(1, count + 1):
                wanted[figure_id, case.key, seed] = replace(first, seed=seed)
    results = _run_all(set(wanted.values()), cache, jobs, progress, engine)
    found = {key: results[job] for key, job in wanted.items()}
    return {figure_id: _figure_runs(figure_id, mine, count, found) for figure_id, mine in cases.items()}


def scenario_of(case: Case) -> Scenario:
    """A case's scenario with its overrides."""
    return as_scenario(case.scenario).point().update(case.overrides)


def _job(case: Case, seed: int, change: Callable[[Scenario], Scenario] | None = None) -> Job:
    if case.search not in (None, "msl", "zero-loss"):
        raise ValueError(f"case {case.key!r}: search is {case.search!r}; it must be msl or zero-loss")
    scenario = scenario_of(case)
    return Job(
        scenario=change(scenario) if change else scenario,
        policies=tuple(case.policies),
        seed=seed,
        sets=case.sets,
        duration_s=case.duration_s,
        warmup_s=case.warmup_s,
        search=case.search,
        nic=case.nic,
    )


def _run_all(
    wanted: Iterable[Job], cache: Path, jobs: int | None, progress: bool | None, engine: Any
) -> dict[Job, dict[str, Any] | Failure]:
    # Long ones first, so that all cores finish at about the same time.
    work = sorted(wanted, key=lambda job: -_cost(job))
    make = partial(run_job, keep=str(cache.absolute()))
    title = "simulations"
    if engine is None:
        results = each(make, work, jobs=jobs, progress=progress, title=title)
    else:
        results = each_on_cluster(make, work, engine, progress=progress, title=title)
    return {work[index]: result for index, result in results}


def _cost(job: Job) -> float:
    """Estimated cost of a job in simulated seconds; a scenario that cannot be read fails when it runs."""
    try:
        about = job.scenario.check()
    except BadInput:
        return 0.0
    searches = 10 if job.search else 1
    return (job.duration_s or about["duration_s"]) / about["time_factor"] * len(job.policies) * searches


def run_job(job: Job, keep: str | None = None) -> dict[str, Any]:
    """Runs one simulation, with steady intervals extrapolated, or one search; the result has plain values only.

    `keep` is the folder that keeps simulations.
    """
    options = {
        "seed": job.seed,
        "sets": job.sets,
        "duration_s": job.duration_s,
        "warmup_s": job.warmup_s,
        "threads": 1,
        "keep": keep,
        "progress": False,
    }
    if job.search is None:
        result = run(job.scenario, job.policies, extrapolate=True, **options)
        assert isinstance(result, Run)
        return json.loads(result.to_json())
    zero_loss = job.search == "zero-loss"
    found = find_load(job.scenario, job.policies, nic=job.nic, zero_loss=zero_loss, **options)
    return {"scenario": found.values["scenario"], "msl_gbps": found.gbps, "policies": {}, "seeds": 1}


def _figure_runs(
    figure_id: str,
    cases: Sequence[Case],
    count: int,
    found: Mapping[tuple[str, Hashable, int], dict[str, Any] | Failure],
) -> FigureRuns:
    failed: dict[Hashable, str] = {}
    means: dict[Hashable, CaseRun] = {}
    singles: list[dict[Hashable, CaseRun]] = [{} for _ in range(count)]
    for case in cases:
        mine = [found[figure_id, case.key, seed] for seed in range(1, count + 1)]
        broken = [result.why for result in mine if isinstance(result, Failure)]
        if broken:
            failed[case.key] = broken[0]
            continue
        values = [result for result in mine if not isinstance(result, Failure)]
        for single, value in zip(singles, values, strict=True):
            single[case.key] = CaseRun(value, case.key)
        means[case.key] = CaseRun(mean(values), case.key)
    lines = [f"case {key!r}: {why}" for key, why in failed.items()]
    return FigureRuns(Runs(means, failed), [Runs(single, failed) for single in singles], lines)


def mean(values: Sequence[Any]) -> Any:
    """The mean of results of the same structure: numbers are averaged, all other values are those of the first result.

    A number that one of the results lacks is absent; lists (decisions, way maps) and texts are those of the first result.
    """
    first = values[0]
    if isinstance(first, Mapping):
        return {
            key: mean([value[key] for value in values])
            for key in first
            if all(isinstance(value, Mapping) and key in value for value in values)
        }
    if isinstance(first, bool) or not isinstance(first, (int, float)):
        return first
    if any(not isinstance(value, (int, float)) for value in values):
        return None
    total = sum(values) / len(values)
    return int(total) if all(isinstance(value, int) for value in values) and total == int(total) else total
