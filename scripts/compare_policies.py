#!/usr/bin/env python3
"""Compares policies over many scenarios and seeds: one table, and whether a policy keeps the bars that were asked for.

    python3 scripts/compare_policies.py --generated 40 --seeds 5 --out comparison --jobs 2

Needs the Python package (`make python`). Each scenario, seed and policy is one file in the folder, so a comparison that
was stopped continues, a policy can be added later, and several processes, also on other machines that share the folder,
may work on it. The server differs from the model that a policy may have of it: five chips, several rules of the cache
model, other sets and seeds for each run. The best layouts were searched with seeds from 1 and from 1001 on, so this
table begins with seed 101. Must not know how a policy decides.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import waykeeper as wk
from waykeeper import mixes
from waykeeper.best import means, scores
from waykeeper.outputs import check_folder, write
from waykeeper.parallel import Failure, each

BUILT_IN = (
    "a4-hpw-heavy",
    "a4-lpw-heavy",
    "iat-fig11",
    "iat-flow-count",
    "iat-leaky-dma",
    "real-grep",
    "real-hpw-heavy",
    "real-inputs",
    "real-lpw-heavy",
    "real-perl",
    "real-zstd",
)
"""Built-in scenarios that compare policies on a mix, without those that sweep a key."""
SCENARIOS = Path(__file__).parents[1] / "scenarios"
POLICIES = ("default", "isolate", "iat", "a4-d", "waykeeper-search", "waykeeper")
RIVALS = ("iat", "a4-d")
BEST = "best"
JUDGED = "waykeeper"
SCHEMA = "waykeeper.comparison/2"
SAME = 1.01
"""A best layout less than 1 % above the better rival is no better than it (ours)."""


@dataclass(frozen=True)
class Bar:
    """What was asked of a policy, and what was measured; `worst` lists the scenarios that miss it by themselves."""

    name: str
    asked: str
    measured: float | None
    met: bool | None
    worst: tuple[str, ...] = ()


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = parser().parse_args(words)
    folder = Path(options.out)
    try:
        check_folder("--out", folder)
        names, policies = chosen(options, folder)
    except (wk.BadInput, OSError) as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = [(str(folder), name, seed, tuple(policies), options.sets) for seed in seeds for name in names]
    for folder_, name, seed, _, sets in tasks:
        for policy in options.again or ():
            path_of(folder_, name, seed, policy, sets).unlink(missing_ok=True)
    failed = []
    if not options.table_only:
        try:
            for index, result in each(run_one, tasks, jobs=options.jobs, title="scenario x seed"):
                if isinstance(result, Failure):
                    failed.append(f"{tasks[index][1]}, seed {tasks[index][2]}: {result.why}")
        except KeyboardInterrupt:
            print("stopped; the same command continues", file=sys.stderr)
            return 130
    records = [record for task in tasks for record in records_of(*task)]
    found = comparison(records, policies, options.judge)
    text = table(found, policies, options.judge)
    print(json.dumps(found, indent=1) if options.json else text)
    write(folder / "table.txt", text + "\n")
    write(folder / "table.json", json.dumps(found, indent=1) + "\n")
    runs = sum(record["policy"] != BEST for record in records)
    cpu_s = sum(record["cpu_s"] for record in records)
    print(f"{runs} of {len(tasks) * len(policies)} runs; {cpu_s:.0f} s of one core", file=sys.stderr)
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
    made.add_argument("--first-seed", type=int, default=101, metavar="N", help="the first of them [101]")
    made.add_argument(
        "--policy", action="append", metavar="NAME", help="a policy, several times [all that exist of seven]"
    )
    made.add_argument("--judge", default=JUDGED, metavar="NAME", help=f"the policy that the bars are for [{JUDGED}]")
    made.add_argument(
        "--again", action="append", metavar="NAME", help="run this policy again where it is done: it has changed"
    )
    made.add_argument("--sets", default="1/32", metavar="1/N|exact", help="share of the LLC's sets [1/32]")
    made.add_argument("--jobs", type=int, default=1, metavar="N", help="processes [1]")
    made.add_argument("--out", default="comparison", metavar="DIR", help="folder of the runs [comparison]")
    made.add_argument("--table-only", action="store_true", help="print the table of the runs that are there")
    made.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return made


def chosen(options: argparse.Namespace, folder: Path) -> tuple[list[str], list[str]]:
    """Scenarios and policies; raises `BadInput` for unknown ones, before the first run."""
    for name in ("seeds", "jobs", "first_seed"):
        if getattr(options, name) < 1:
            raise wk.BadInput(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be at least 1")
    # From the repository: the scenarios with recorded traces read files beside them.
    names = list(options.scenarios) or [str(SCENARIOS / f"{name}.toml") for name in BUILT_IN]
    for name in names:
        if wk.Scenario.load(name).check()["sweep"]:
            raise wk.BadInput(f"{name} sweeps a key; only scenarios with one point are compared")
    policies = list(options.policy or (name for name in POLICIES if name in wk.policies()))
    wk.running.check_policies([*policies, options.judge, *(options.again or ())])
    if options.generated:
        names += [str(file) for file in mixes.write(folder / "mixes", options.mix_seed, options.generated)]
    if "default" not in policies:
        policies.insert(0, "default")
    return names, policies


def path_of(folder: str, name: str, seed: int, policy: str, sets: str) -> Path:
    """The file of a run: of this scenario's content, seed, policy and version."""
    digest = wk.Scenario.load(name).source().best_fingerprint()
    what = f"{Path(name).stem}.{digest}.{seed}.{policy}.{sets.replace('/', '-')}.{wk.__version__}"
    return Path(folder) / "runs" / f"{what}.json"


def records_of(folder: str, name: str, seed: int, policies: tuple[str, ...], sets: str) -> Iterator[dict[str, Any]]:
    """The runs of a scenario and seed that are there."""
    for policy in (*policies, BEST):
        file = path_of(folder, name, seed, policy, sets)
        if file.is_file():
            yield json.loads(file.read_text(encoding="utf-8"))


def run_one(task: tuple[str, str, int, tuple[str, ...], str]) -> None:
    """Runs a scenario with a seed under the policies that are not done, unless another process is at it."""
    folder, name, seed, policies, sets = task
    paths = {policy: path_of(folder, name, seed, policy, sets) for policy in (*policies, BEST)}
    with open(paths["default"].with_suffix(".lock"), "w") as lock:
        try:
            # The kernel frees the lock when the process ends, also after a kill.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        missing = [policy for policy in policies if not paths[policy].is_file()]
        # Together as far as possible: policies share a server until they turn different knobs.
        for policy, record in measured(name, seed, missing, sets, best=not paths[BEST].is_file()):
            write(paths[policy], json.dumps(record, indent=1) + "\n")


def measured(
    name: str, seed: int, policies: Sequence[str], sets: str, best: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The numbers of a scenario and seed per policy, and of the best known layout, if there is one."""
    options = {"seed": seed, "sets": sets, "threads": 1, "progress": False, "extrapolate": True}
    about, changed_s = wk.Scenario.load(name).check(), last_change_s(wk.Scenario.load(name))
    groups: list[list[str]] = [list(policies)] if policies else []
    if best:
        groups.append([BEST])
    for group in groups:
        started = time.process_time()
        try:
            run = wk.run(name, group, **options)
        except wk.BadInput as why:
            if group == [BEST] and "no best layout" in str(why):
                continue
            raise
        cpu_s = (time.process_time() - started) / len(group)
        for policy, result in run.policies.items():
            turned = sum(len(decision["knobs"]) for decision in result.decisions if "knobs" in decision)
            yield (
                policy,
                {
                    "schema": SCHEMA,
                    "scenario": run.scenario,
                    "chip": run.head["chip"],
                    "policy": policy,
                    "seed": seed,
                    "cpu_s": cpu_s,
                    "scores": scores(result),
                    "settled_intervals": intervals(result.settled_s, changed_s, about["interval_s"]),
                    "knobs_turned": turned,
                },
            )


def last_change_s(scenario: wk.Scenario) -> float:
    """The last time before the measured stretch at which the scenario itself changes something; 0 if it never does."""
    tables = scenario.to_dict()
    times = [phase.get("at_s", 0) for phase in tables.get("knobs", {}).get("phase", [])]
    for kind in ("nic", "workload"):
        for table in tables.get(kind, []):
            times += [table.get("start_s", 0), table.get("stop_s", 0)]
            times += [phase.get("at_s", 0) for phase in table.get("phase", [])]
    about = scenario.check()
    return max((at_s for at_s in times if at_s < about["duration_s"] - about["measure_s"]), default=0)


def intervals(settled_s: float | None, changed_s: float, interval_s: float) -> float | None:
    """Intervals from the scenario's last change until a policy settled; 0 if it turned no knob after the change."""
    return None if settled_s is None else max(0.0, settled_s - changed_s) / interval_s


def comparison(records: Sequence[dict[str, Any]], policies: Sequence[str], judged: str) -> dict[str, Any]:
    """All numbers: a row per scenario and policy, a summary per policy, the bars of the judged one."""
    by_scenario: dict[str, dict[int, dict[str, dict[str, Any]]]] = {}
    for record in records:
        by_scenario.setdefault(record["scenario"], {}).setdefault(record["seed"], {})[record["policy"]] = record
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    chips = {record["scenario"]: record["chip"] for record in records}
    for scenario, seeds in by_scenario.items():
        whole = [runs for _, runs in sorted(seeds.items()) if "default" in runs]
        rows[scenario] = {
            policy: row
            for policy in (*policies, BEST)
            if (row := row_of([entry(runs, policy) for runs in whole if policy in runs])) is not None
        }
    return {
        "schema": SCHEMA,
        "seeds": sorted({record["seed"] for record in records}),
        "scenarios": {name: {"chip": chips[name], "kind": kind_of(name), "policies": rows[name]} for name in rows},
        "summary": {policy: summary_of(rows, policy) for policy in policies},
        "judged": judged,
        "bars": [asdict(bar) for bar in bars(rows, judged)],
        "no_room": [name for name, row in rows.items() if (room := against_rivals(row, BEST)) and room < SAME],
    }


def kind_of(scenario: str) -> str:
    """`contended` and `other` mixes are generated."""
    parts = scenario.split("-")
    if parts[0] != "mix" or not parts[-1].isdigit():
        return "given"
    return "contended" if mixes.is_contended(int(parts[-1])) else "other"


def entry(runs: dict[str, dict[str, Any]], policy: str) -> dict[str, Any]:
    """The numbers of one run relative to `default` and to the best layout with the same seed."""
    record, base = runs[policy], runs["default"]["scores"]
    hpw, lpw = means(base, record["scores"])
    priorities = {score[2] for score in base.values()}
    regret = None
    if BEST in runs and policy != BEST:
        regret = 1.0 - hpw / means(base, runs[BEST]["scores"])[0]
    return {
        "hpw": hpw if True in priorities else None,
        "lpw": lpw if False in priorities else None,
        "regret": regret,
        "settled_intervals": record["settled_intervals"],
        "knobs_turned": record["knobs_turned"],
    }


def row_of(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Means over seeds, with standard errors; intervals to settle are the median, and infinite for a run that did not
    settle after turning knobs."""
    if not runs:
        return None
    row: dict[str, Any] = {"seeds": len(runs)}
    for key in ("hpw", "lpw", "regret", "knobs_turned"):
        values = [run[key] for run in runs if run[key] is not None]
        row[key] = statistics.fmean(values) if values else None
        row[f"{key}_error"] = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    settled = statistics.median(settled_of(run) for run in runs)
    row["settled"], row["never_settled"] = (settled if math.isfinite(settled) else None), math.isinf(settled)
    return row


def settled_of(run: dict[str, Any]) -> float:
    """Intervals until it settled: 0 if it turned nothing."""
    if not run["knobs_turned"]:
        return 0.0
    return math.inf if run["settled_intervals"] is None else run["settled_intervals"]


def settled_in(row: dict[str, Any]) -> float:
    """Intervals of a row, infinite if it never settled."""
    return math.inf if row["never_settled"] else row["settled"]


def against_rivals(row: dict[str, dict[str, Any]], policy: str) -> float | None:
    """HPW mean relative to the better rival's."""
    rivals = [row[name]["hpw"] for name in RIVALS if name in row and row[name]["hpw"] is not None]
    mine = row[policy]["hpw"] if policy in row else None
    return mine / max(rivals) if rivals and mine is not None else None


def summary_of(rows: dict[str, dict[str, dict[str, Any]]], policy: str) -> dict[str, Any]:
    """Over all scenarios: geometric means, worst values, medians."""
    mixed = {name: row[policy] for name, row in rows.items() if policy in row}
    column = {
        key: [row[key] for row in mixed.values() if row[key] is not None]
        for key in ("hpw", "lpw", "regret", "knobs_turned")
    }
    ratios = {name: ratio for name in mixed if (ratio := against_rivals(rows[name], policy)) is not None}
    kinds = {kind_of(name) for name in ratios}
    settled = statistics.median(map(settled_in, mixed.values())) if mixed else math.inf
    return {
        "hpw": geometric(column["hpw"]),
        "hpw_worst": min(column["hpw"], default=None),
        "lpw": geometric(column["lpw"]),
        "lpw_worst": min(column["lpw"], default=None),
        "regret_median": statistics.median(column["regret"]) if column["regret"] else None,
        "regret_worst": max(column["regret"], default=None),
        "settled_median": settled if math.isfinite(settled) else None,
        "knobs_turned": statistics.fmean(column["knobs_turned"]) if column["knobs_turned"] else None,
        "against_rivals": geometric(list(ratios.values())),
        "against_rivals_worst": min(ratios.values(), default=None),
        "against_rivals_by_kind": {
            kind: geometric([ratio for name, ratio in ratios.items() if kind_of(name) == kind])
            for kind in sorted(kinds)
        },
    }


def bars(rows: dict[str, dict[str, dict[str, Any]]], judged: str) -> list[Bar]:
    """What was asked of our policy, each with what was measured."""
    mine = {name: row for name, row in rows.items() if judged in row}
    if not mine:
        return []
    all_ = summary_of(rows, judged)
    best = {name: ratio for name in mine if (ratio := against_rivals(rows[name], BEST)) is not None}
    ratios = {name: against_rivals(row, judged) for name, row in mine.items()}

    def column(key: str) -> dict[str, float]:
        return {name: row[judged][key] for name, row in mine.items() if row[judged][key] is not None}

    def missing(values: dict[str, float | None], bad: Any) -> tuple[str, ...]:
        found = [(value, name) for name, value in values.items() if value is not None and bad(value)]
        return tuple(name for _, name in sorted(found))

    rival_knobs = [row["a4-d"]["knobs_turned"] for row in mine.values() if "a4-d" in row]
    knobs_asked = statistics.fmean(rival_knobs) if rival_knobs else None
    settled = statistics.median(settled_in(row[judged]) for row in mine.values())
    better = f"better of {' and '.join(RIVALS)}"
    low_hpw = missing(ratios, lambda value: value < 0.97)
    low_lpw = missing(column("lpw"), lambda value: value < 0.97)
    far = missing(column("regret"), lambda value: value > 0.10)[::-1]
    made = [
        ("HPW mean / " + better + ", geometric mean", ">= 1.08", all_["against_rivals"], lambda v: v >= 1.08, ()),
        ("the same of the best layouts known", "", geometric(list(best.values())), None, ()),
        ("HPW mean / " + better + ", lowest", ">= 0.97", all_["against_rivals_worst"], lambda v: v >= 0.97, low_hpw),
        ("LPW mean / default, lowest", ">= 0.97", all_["lpw_worst"], lambda v: v >= 0.97, low_lpw),
        ("regret, median", "<= 0.03", all_["regret_median"], lambda v: v <= 0.03, ()),
        ("regret, worst", "<= 0.10", all_["regret_worst"], lambda v: v <= 0.10, far),
        ("intervals to settle, median", "<= 5", settled, lambda v: v <= 5, ()),
        (
            "knobs turned, mean",
            "" if knobs_asked is None else f"< {knobs_asked:.1f}",
            all_["knobs_turned"],
            None if knobs_asked is None else lambda v: v < knobs_asked,
            (),
        ),
    ]
    return [
        Bar(
            name,
            asked,
            None if value is None or math.isinf(value) else value,
            None if test is None or value is None else test(value),
            worst,
        )
        for name, asked, value, test, worst in made
    ]


def table(found: dict[str, Any], policies: Sequence[str], judged: str) -> str:
    """The comparison as text: rows, the summary, the bars."""
    head = f"{'scenario':<16} {'chip':<11} {'policy':<16} {'HPW':>13} {'LPW':>13}"
    lines = [f"{head} {'regret':>7} {'settled':>7} {'knobs':>6}"]
    for name, scenario in found["scenarios"].items():
        for policy, row in scenario["policies"].items():
            lines.append(f"{name:<16} {scenario['chip']:<11} {policy:<16} {shown(row)}")
    lines.append("")
    lines.extend(summary_lines(found, policies))
    lines.append("")
    lines.extend(bar_lines(found, judged))
    return "\n".join(lines)


def shown(row: dict[str, Any]) -> str:
    """The numbers of a row."""

    def mean(key: str) -> str:
        error = row[f"{key}_error"]
        value = number(row[key], 3, 6)
        return value + (f" ±{error:.3f}" if error is not None and row[key] is not None else "       ")

    settled = "  never" if row["never_settled"] else number(row["settled"], 0, 7)
    regret = number(row["regret"], 1, 6, 100.0) + ("%" if row["regret"] is not None else " ")
    return f"{mean('hpw')} {mean('lpw')} {regret} {settled} {number(row['knobs_turned'], 0, 6)}"


def number(value: float | None, digits: int, width: int, factor: float = 1.0) -> str:
    """A number in a column; a dash for one that is not available."""
    return ("-" if value is None else f"{value * factor:.{digits}f}").rjust(width)


def summary_lines(found: dict[str, Any], policies: Sequence[str]) -> Iterator[str]:
    """One line per policy."""
    count = len(found["scenarios"])
    head = f"{f'over {count} scenarios':<18} {'HPW':>6} {'worst':>6} {'LPW':>6} {'worst':>6} {'regret':>7} {'worst':>6}"
    yield f"{head} {'settled':>7} {'knobs':>6} {'/rival':>6} {'worst':>6}"
    kinds = sorted({scenario["kind"] for scenario in found["scenarios"].values()})
    for policy in policies:
        row = found["summary"][policy]
        parts = [number(row[key], 3, 6) for key in ("hpw", "hpw_worst", "lpw", "lpw_worst")]
        parts += [number(row["regret_median"], 1, 6, 100.0) + "%", number(row["regret_worst"], 1, 5, 100.0) + "%"]
        parts += [number(row["settled_median"], 0, 7), number(row["knobs_turned"], 0, 6)]
        parts += [number(row["against_rivals"], 3, 6), number(row["against_rivals_worst"], 3, 6)]
        by_kind = row["against_rivals_by_kind"]
        yield f"{policy:<18} {' '.join(parts)}  " + ", ".join(
            f"{kind} {number(by_kind.get(kind), 3, 5).strip()}" for kind in kinds
        )
    yield "HPW, LPW: geometric means of the ratios to default (± is the standard error over seeds); regret: median;"
    yield "settled: median of intervals after the scenario's last change, 0 without a knob turned since; knobs: mean;"
    yield f"/rival: HPW mean divided by that of the better of {' and '.join(RIVALS)}, geometric mean, worst, by kind"


def bar_lines(found: dict[str, Any], judged: str) -> Iterator[str]:
    """What was asked, what was measured, the verdict; then the scenarios that miss a bar."""
    if not found["bars"]:
        yield f"no run of {judged} to judge"
        return
    yield f"{'bars for ' + judged:<62} {'asked':>9} {'measured':>9}  verdict"
    for bar in found["bars"]:
        verdict = {True: "met", False: "MISSED", None: "-"}[bar["met"]]
        measured_ = "never" if bar["measured"] is None and bar["met"] is False else number(bar["measured"], 3, 9)
        yield f"{bar['name']:<62} {bar['asked']:>9} {measured_:>9}  {verdict}"
    for bar in found["bars"]:
        if bar["worst"]:
            yield f"missed, worst first ({bar['name']}): {', '.join(bar['worst'])}"
    if found["no_room"]:
        near = f"best layout known less than {100 * (SAME - 1):.0f} % above the better rival"
        yield f"{near}: {', '.join(found['no_room'])}"


def geometric(values: Sequence[float]) -> float | None:
    """The geometric mean; `None` of nothing."""
    return statistics.geometric_mean(values) if values else None


if __name__ == "__main__":
    sys.exit(main())
