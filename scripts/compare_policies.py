#!/usr/bin/env python3
"""Compares policies over many scenarios and seeds, and prints one table: means, regret, time to settle, knobs turned.

    python3 scripts/compare_policies.py --generated 40 --seeds 5 --out comparison --jobs 2

Needs the Python package (`make python`). Each scenario and seed is one file in the folder, so a comparison that was stopped
continues, and several processes, also on other machines that share the folder, may work on it. Must not know how a policy
decides.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import waykeeper as wk
from waykeeper import mixes
from waykeeper.parallel import Failure, each

BUILT_IN = (
    "a4-hpw-heavy",
    "a4-lpw-heavy",
    "iat-fig11",
    "iat-flow-count",
    "iat-leaky-dma",
    "real-hpw-heavy",
    "real-inputs",
    "real-lpw-heavy",
)
"""Built-in scenarios that compare policies on a mix, without those that sweep a key."""
POLICIES = ("default", "isolate", "iat", "a4-d", "waykeeper-search", "waykeeper")
RIVALS = ("iat", "a4-d")
OURS = "waykeeper"
SCHEMA = "waykeeper.comparison/1"


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = parser().parse_args(words)
    folder = Path(options.out)
    try:
        names, policies = chosen(options, folder)
    except (wk.BadInput, OSError) as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    tasks = [
        (str(folder), name, seed, tuple(policies), options.sets)
        for seed in range(1, options.seeds + 1)
        for name in names
    ]
    failed = []
    if not options.table_only:
        try:
            for index, result in each(run_one, tasks, jobs=options.jobs, title="scenario x seed"):
                if isinstance(result, Failure):
                    failed.append(f"{tasks[index][1]}, seed {tasks[index][2]}: {result.why}")
        except KeyboardInterrupt:
            print("stopped; the same command continues", file=sys.stderr)
            return 130
    records = [json.loads(file.read_text(encoding="utf-8")) for task in tasks if (file := path_of(*task)).is_file()]
    text = table(records, policies)
    print(text)
    (folder / "table.txt").write_text(text + "\n", encoding="utf-8")
    print(
        f"{len(records)} of {len(tasks)} runs; {sum(record['cpu_s'] for record in records):.0f} s of one core",
        file=sys.stderr,
    )
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(description="Compare policies over built-in and generated scenarios.")
    made.add_argument("scenarios", nargs="*", help="names or files [the built-in mixes]")
    made.add_argument("--generated", type=int, default=0, metavar="N", help="also the first N generated mixes [0]")
    made.add_argument("--mix-seed", type=int, default=1, metavar="N", help="seed of the generator [1]")
    made.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds of each scenario [1]")
    made.add_argument(
        "--policy", action="append", metavar="NAME", help="a policy, several times [all that exist of six]"
    )
    made.add_argument("--sets", default="1/32", metavar="1/N|exact", help="share of the LLC's sets [1/32]")
    made.add_argument("--jobs", type=int, default=1, metavar="N", help="processes [1]")
    made.add_argument("--out", default="comparison", metavar="DIR", help="folder of the runs [comparison]")
    made.add_argument("--table-only", action="store_true", help="print the table of the runs that are there")
    return made


def chosen(options: argparse.Namespace, folder: Path) -> tuple[list[str], list[str]]:
    """Scenarios and policies; raises `BadInput` for unknown ones, before the first run."""
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            raise wk.BadInput(f"--{name} is {getattr(options, name)}; it must be at least 1")
    names = list(options.scenarios) or list(BUILT_IN)
    for name in names:
        if wk.Scenario.load(name).check()["sweep"]:
            raise wk.BadInput(f"{name} sweeps a key; only scenarios with one point are compared")
    if options.generated:
        names += [str(file) for file in mixes.write(folder / "mixes", options.mix_seed, options.generated)]
    policies = list(options.policy or (name for name in POLICIES if name in wk.policies()))
    wk.running.check_policies(policies)
    if "default" not in policies:
        policies.insert(0, "default")
    return names, policies


def path_of(folder: str, name: str, seed: int, policies: tuple[str, ...], sets: str) -> Path:
    """The file of a run: of this scenario's content, seed, policies and version."""
    digest = wk.Scenario.load(name).digest()[:12]
    what = f"{Path(name).stem}.{digest}.{seed}.{'+'.join(policies)}.{sets.replace('/', '-')}.{wk.__version__}"
    return Path(folder) / "runs" / f"{what}.json"


def run_one(task: tuple[str, str, int, tuple[str, ...], str]) -> None:
    """Runs a scenario with a seed, unless it is done or another process is at it."""
    file = path_of(*task)
    with open(file.with_suffix(".lock"), "w") as lock:
        try:
            # The kernel frees the lock when the process ends, also after a kill.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if file.is_file():
            return
        record = measured(*task[1:])
        part = file.with_suffix(".part")
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        os.replace(part, file)


def measured(name: str, seed: int, policies: tuple[str, ...], sets: str) -> dict[str, Any]:
    """The numbers of a scenario and seed; with the best known layout, if there is one."""
    started = time.process_time()
    options = {"seed": seed, "sets": sets, "threads": 1, "progress": False, "extrapolate": True}
    try:
        run = wk.run(name, [*policies, "best"], **options)
    except wk.BadInput as why:
        if "no best layout" not in str(why):
            raise
        run = wk.run(name, policies, **options)
    interval_s = wk.Scenario.load(name).check()["interval_s"]
    rows = {}
    for policy, result in run.policies.items():
        settled = result.settled_s
        turned = sum(len(decision["knobs"]) for decision in result.decisions if "knobs" in decision)
        rows[policy] = {
            "hpw": mean_of(result, "HPW"),
            "lpw": mean_of(result, "LPW"),
            "regret": (result.regret or {}).get("hpw_regret_ratio"),
            "settled_intervals": None if settled is None else settled / interval_s,
            "knobs_turned": turned,
        }
    return {
        "schema": SCHEMA,
        "scenario": run.scenario,
        "chip": run.head["chip"],
        "seed": seed,
        "cpu_s": time.process_time() - started,
        "policies": rows,
    }


def mean_of(result: wk.PolicyRun, group: str) -> float | None:
    """The mean of a group; `None` if the scenario has none."""
    try:
        return result.group(group).performance_ratio
    except KeyError:
        return None


def table(records: list[dict[str, Any]], policies: Sequence[str]) -> str:
    """The table: a row per scenario and policy, means over its seeds; then the summary."""
    by_mix: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_mix.setdefault(record["scenario"], []).append(record)
    lines = [f"{'scenario':<18} {'policy':<16} {'HPW':>6} {'LPW':>6} {'regret':>7} {'settled':>8} {'knobs':>6}"]
    rows: dict[str, dict[str, dict[str, float | None]]] = {}
    for mix, runs in by_mix.items():
        rows[mix] = {}
        names = [*policies, *(["best"] if any("best" in run["policies"] for run in runs) else [])]
        for policy in names:
            row = row_of([run["policies"][policy] for run in runs if policy in run["policies"]])
            rows[mix][policy] = row
            lines.append(f"{mix:<18} {policy:<16} {shown(row)}")
    lines.append("")
    lines.extend(summary(rows, policies))
    return "\n".join(lines)


def row_of(runs: list[dict[str, Any]]) -> dict[str, float | None]:
    """Means over seeds; intervals to settle are the median, and infinite for a run that did not settle after turning knobs."""
    row: dict[str, float | None] = {}
    for key in ("hpw", "lpw", "regret", "knobs_turned"):
        values = [run[key] for run in runs if run[key] is not None]
        row[key] = statistics.fmean(values) if values else None
    settled = [settled_of(run) for run in runs]
    row["settled"] = statistics.median(settled) if settled else None
    return row


def settled_of(run: dict[str, Any]) -> float:
    """Intervals until it settled: 0 if it turned nothing."""
    if run["settled_intervals"] is None:
        return math.inf if run["knobs_turned"] else 0.0
    return run["settled_intervals"]


def shown(row: dict[str, float | None]) -> str:
    """The numbers of a row."""

    def number(value: float | None, digits: int, width: int, factor: float = 1.0) -> str:
        text = "-" if value is None else "never" if math.isinf(value) else f"{value * factor:.{digits}f}"
        return text.rjust(width)

    parts = [number(row["hpw"], 3, 6), number(row["lpw"], 3, 6), number(row["regret"], 1, 6, 100.0) + "%"]
    return " ".join([*parts, number(row["settled"], 0, 8), number(row["knobs_turned"], 0, 6)])


def summary(rows: dict[str, dict[str, dict[str, float | None]]], policies: Sequence[str]) -> Iterator[str]:
    """Over all scenarios: geometric means, worst values, medians; and each policy against the better of its rivals."""
    head = f"{'over ' + str(len(rows)) + ' scenarios':<18} {'HPW':>6} {'worst':>6} {'LPW':>6} {'worst':>6}"
    yield f"{head} {'regret':>7} {'worst':>6} {'settled':>8} {'knobs':>6} {'/rival':>7} {'worst':>6}"
    for policy in policies:
        mixed = [row[policy] for row in rows.values()]
        hpw, lpw, regret = ([row[key] for row in mixed if row[key] is not None] for key in ("hpw", "lpw", "regret"))
        against = [ratio for row in rows.values() if (ratio := against_rivals(row, policy)) is not None]
        settled = statistics.median(row["settled"] for row in mixed) if mixed else math.inf
        knobs = statistics.fmean(row["knobs_turned"] or 0.0 for row in mixed) if mixed else 0.0
        numbers = [geometric(hpw), least(hpw), geometric(lpw), least(lpw)]
        text = " ".join(f"{value:6.3f}" if value is not None else "     -" for value in numbers)
        regrets = (
            f"{100 * statistics.median(regret):6.1f}% {100 * max(regret):5.1f}%" if regret else f"{'-':>7} {'-':>6}"
        )
        never = f"{settled:8.0f}" if math.isfinite(settled) else "   never"
        rival = f"{geometric(against):7.3f} {least(against):6.3f}" if against else f"{'-':>7} {'-':>6}"
        yield f"{policy:<18} {text} {regrets} {never} {knobs:6.0f} {rival}"
    yield "HPW, LPW: geometric means of the ratios to default; regret and settled (intervals): medians; knobs: mean"
    yield f"/rival: HPW mean divided by that of the better of {' and '.join(RIVALS)}, geometric mean and worst"


def against_rivals(row: dict[str, dict[str, float | None]], policy: str) -> float | None:
    """HPW mean relative to the better rival's."""
    rivals = [row[name]["hpw"] for name in RIVALS if name in row and row[name]["hpw"] is not None]
    mine = row[policy]["hpw"]
    return mine / max(rivals) if rivals and mine is not None else None


def geometric(values: Sequence[float]) -> float | None:
    """The geometric mean; `None` of nothing."""
    return statistics.geometric_mean(values) if values else None


def least(values: Sequence[float]) -> float | None:
    """The smallest; `None` of nothing."""
    return min(values, default=None)


if __name__ == "__main__":
    sys.exit(main())
