"""The best static layout of a scenario that a search finds: one mask per workload, the DCA ways, DCA per device.

    python -m waykeeper.best a4-hpw-heavy --trials 200

A trial runs the policy `fixed` with a layout, on the same seeds as every other trial. This module must not know how a layout
is drawn (`best_space`) nor how a run is made (`running`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ._native import BadInput, RunFailed, __version__
from .best_space import Layout, Space, starts
from .best_stretch import Stretch, stretch
from .outputs import check_file, write
from .parallel import Failure, attempt, each
from .results import PolicyRun, Run
from .running import AnyScenario, run, shows_progress
from .scenario import Scenario, as_scenario

SCHEMA = "waykeeper.best/1"
SAMPLER = "Optuna TPE, multivariate; every second layout a neighbour of one of the best three"
PENALTY = 5.0
"""A point of LPW mean below the floor costs five of HPW mean: enough that no gain pays for it (ours)."""
CONFIRMED = 5
"""Layouts that are measured again, on seeds that the search did not use: the highest of many noisy numbers is too high."""
NEIGHBOURS_OF = 3
"""Layouts whose neighbours are tried."""
FRESH_SEED = 1001
"""First of these seeds."""


@dataclass(frozen=True)
class Search:
    """What a process needs to work on a search."""

    scenario: Scenario
    journal: str
    trials: int
    floor: float
    seeds: int
    sets: str
    trial: Stretch
    """What a trial runs."""
    confirm: Stretch
    """What is run with the best few layouts, on other seeds."""
    base: tuple[dict[str, tuple[str, int, bool, float]], ...] = ()
    """Per seed: workload -> kind of score, cores, high priority, score under `default`."""
    space: Space | None = field(default=None)

    def run(self, part: Stretch, layout: Layout | None, seed: int) -> PolicyRun:
        """The result of a layout, or of `default`."""
        name = "default" if layout is None else "fixed"
        scenario = part.scenario if layout is None else part.scenario.set("policy.fixed", layout.settings())
        options = {"seed": seed, "sets": self.sets, "warmup_s": part.warmup_s, "duration_s": part.duration_s}
        result = run(scenario, [name], threads=1, progress=False, **options)
        assert isinstance(result, Run)
        return result.policy(name)

    def measure(
        self, part: Stretch, layout: Layout, seed: int, base: dict[str, tuple[str, int, bool, float]]
    ) -> tuple[float, float]:
        """HPW and LPW mean of a layout, relative to `base`; a priority without workloads has 1."""
        return means(base, scores(self.run(part, layout, seed)))


def scores(result: PolicyRun) -> dict[str, tuple[str, int, bool, float]]:
    """Per workload: kind of score, cores, high priority, score (higher is better)."""
    found = {}
    for name, workload in result.workloads.items():
        value = workload.ipc
        if workload.score == "inverse-latency":
            value = 1.0 / workload.latency_mean_us if workload.latency_mean_us else None
        if value:
            found[name] = (workload.score, len(_cores(workload.cores)), workload.priority == "high", value)
    return found


def means(
    base: dict[str, tuple[str, int, bool, float]], other: dict[str, tuple[str, int, bool, float]]
) -> tuple[float, float]:
    """HPW and LPW mean as `waykeeper run` has them: ratios of scores, weighted by cores. A workload without a score is left out."""
    result = []
    for high in (True, False):
        shared = [name for name, entry in base.items() if entry[2] == high and name in other]
        cores = sum(base[name][1] for name in shared)
        total = sum(base[name][1] * other[name][3] / base[name][3] for name in shared)
        result.append(total / cores if cores else 1.0)
    return result[0], result[1]


def _cores(text: str) -> list[int]:
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores.extend(range(int(first), int(last or first) + 1))
    return cores


def best(
    scenario: AnyScenario,
    *,
    out: str | os.PathLike[str],
    lpw_floor: float = 0.97,
    trials: int = 200,
    seeds: int = 1,
    confirm_seeds: int = 3,
    sets: str = "1/32",
    jobs: int = 1,
    resume: bool = False,
    force: bool = False,
    engine: Any = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Searches the layout with the highest HPW mean whose LPW mean is at least `lpw_floor`; writes it to `out` and returns it.

    * `trials`: trials of the whole search, those of earlier processes included.
    * `seeds`: every trial runs these seeds, from 1 on. The best few layouts are then measured on `confirm_seeds` other ones.
    * `resume`: continue the search whose journal is beside `out`. Several processes may work on one journal.
    * `force`: overwrite an existing result, and begin an earlier search beside it again.
    * `engine`: `None` for processes on this machine, or a `distributed.Client` (Dask) whose workers share the folder of `out`.

    Ctrl-C keeps the trials that are done; `resume` continues. Raises `BadInput` for wrong arguments and scenarios.
    """
    optuna = _optuna()
    scenario = as_scenario(scenario)
    _check(scenario, lpw_floor, trials, seeds, confirm_seeds, jobs)
    out = Path(out)
    journal = out.with_suffix(".journal")
    if journal.exists() and not (resume or force):
        raise BadInput(f"{journal} has an earlier search; give --resume to continue it, or --force to begin again")
    check_file("--out", out, replace=resume or force)
    if force:
        journal.unlink(missing_ok=True)
    study = None
    try:
        search = _prepare(scenario, str(journal), trials, lpw_floor, seeds, sets)
        study = _study(optuna, search, create=True)
        _work_all(search, jobs, engine, progress)
        found = _confirm(search, _feasible(study, lpw_floor), confirm_seeds, len(_complete(study)))
    except KeyboardInterrupt:
        done = len(_complete(study)) if study else 0
        left = len(_feasible(study, lpw_floor)) if study else 0
        if not done and not resume:
            journal.unlink(missing_ok=True)
        kept = f"{journal} has {done} layouts, {left} of them above the floor; continue with --resume"
        print(f"\nstopped; {kept if done else 'no layout was tried yet, nothing is kept'}", file=sys.stderr)
        raise
    text = json.dumps(found, indent=1) + "\n"
    write(out, text)
    return found


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as why:
        raise RunFailed('the search needs Optuna, which is not installed; run `pip install "waykeeper[best]"`') from why
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check(scenario: Scenario, floor: float, trials: int, seeds: int, confirm_seeds: int, jobs: int) -> None:
    if not 0.0 <= floor <= 2.0:
        raise BadInput(f"the floor of the LPW mean is {floor}; it must be from 0 to 2")
    for name, value in (("trials", trials), ("seeds", seeds), ("confirm seeds", confirm_seeds), ("jobs", jobs)):
        if value < 1:
            raise BadInput(f"the number of {name} is {value}; it must be at least 1")
    about = scenario.check()
    if about["sweep"]:
        raise BadInput(f"{scenario.file} sweeps {about['sweep'][0]}; a layout belongs to one point: set `sweep = []`")


def _prepare(scenario: Scenario, journal: str, trials: int, floor: float, seeds: int, sets: str) -> Search:
    """The search with its space and the scores under `default`."""
    search = Search(scenario, journal, trials, floor, seeds, sets, stretch(scenario, short=True), stretch(scenario))
    base = tuple(scores(search.run(search.trial, None, seed)) for seed in range(1, seeds + 1))
    return Search(**{**search.__dict__, "base": base, "space": Space.of(scenario)})


def _study(optuna: Any, search: Search, create: bool = False) -> Any:
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(search.journal))
    name = f"{search.scenario.digest()[:16]} {search.seeds} {search.sets} {search.floor} {__version__}"
    if not create:
        return optuna.load_study(study_name=name, storage=storage, sampler=_sampler(optuna))
    names = optuna.get_all_study_names(storage)
    if names and name not in names:
        raise BadInput(
            f"{search.journal} has another search (scenario, seeds, sets, floor or version); choose another --out"
        )
    study = optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)
    if not study.trials and search.space is not None:
        for layout in starts(search.scenario, search.space, search.sets):
            study.enqueue_trial(search.space.parameters(layout))
    return study


def _sampler(optuna: Any) -> Any:
    # TPE and not CMA-ES: the space mixes numbers with switches, starts from known layouts, and several processes work on
    # it; `constant_liar` keeps those from trying the same layout. Without a seed, since processes must differ.
    return optuna.samplers.TPESampler(multivariate=True, constant_liar=True, n_startup_trials=20)


def _work_all(search: Search, jobs: int, engine: Any, progress: bool | None) -> None:
    if engine is not None:
        workers = [engine.submit(attempt, _work, (search, False), pure=False) for _ in range(jobs)]
        results = [worker.result() for worker in workers]
    else:
        shown = shows_progress(progress)
        results = [result for _, result in each(_work, [(search, shown)] * jobs, jobs=jobs, progress=False)]
    for result in results:
        if isinstance(result, Failure):
            raise RunFailed(result.why)


def _work(task: tuple[Search, bool]) -> None:
    """Runs trials until the search has its number; with progress, one line per improvement."""
    search, shown = task
    optuna = _optuna()
    study = _study(optuna, search)
    draw = Random()
    while len(_complete(study)) < search.trials:
        _enqueue_neighbour(study, search, draw)
        trial = study.ask()
        try:
            value = _trial(search, trial)
        except BaseException:
            # Its layout, which may be a starting point, is tried when the search is resumed.
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(trial.params)
            raise
        study.tell(trial, value)
        if shown:
            _show(study, search)
    if shown:
        print(file=sys.stderr)


def _enqueue_neighbour(study: Any, search: Search, draw: Random) -> None:
    """Every second time, and after the starting points, the next layout is a small change of one of the best three: a few dozen
    trials are too few for TPE alone in a space of two dozen numbers."""
    trials = study.trials
    waiting = any(trial.state.name == "WAITING" for trial in trials)
    good = [trial for trial in trials if trial.value is not None and trial.user_attrs["lpw"] >= search.floor]
    if waiting or not good or len(trials) % 2 or search.space is None:
        return
    good.sort(key=lambda trial: -trial.value)
    study.enqueue_trial(search.space.neighbour(draw.choice(good[:NEIGHBOURS_OF]).params, draw))


def _complete(study: Any) -> list[Any]:
    """The trials that have a result."""
    return [trial for trial in study.trials if trial.value is not None]


def _trial(search: Search, trial: Any) -> float:
    assert search.space is not None
    layout = search.space.suggest(trial)
    pairs = [search.measure(search.trial, layout, seed, base) for seed, base in enumerate(search.base, start=1)]
    hpw, lpw = (statistics.fmean(column) for column in zip(*pairs))
    for key, value in (("layout", layout.settings()), ("hpw", hpw), ("lpw", lpw)):
        trial.set_user_attr(key, value)
    return hpw - PENALTY * max(0.0, search.floor - lpw)


def _show(study: Any, search: Search) -> None:
    ranked = _feasible(study, search.floor)
    top = f"HPW x{ranked[0][1]:.3f} LPW x{ranked[0][2]:.3f}" if ranked else "none above the floor"
    done = len(_complete(study))
    print(
        f"\r{search.scenario.file}: {done} of {search.trials} layouts, best {top}   ",
        end="",
        file=sys.stderr,
        flush=True,
    )


def _feasible(study: Any, floor: float) -> list[tuple[Layout, float, float]]:
    """Layouts with their means, the best first; each once."""
    found: dict[str, tuple[Layout, float, float]] = {}
    for trial in _complete(study):
        if trial.user_attrs["lpw"] >= floor:
            layout = Layout.of(trial.user_attrs["layout"])
            found[json.dumps(trial.user_attrs["layout"])] = (layout, trial.user_attrs["hpw"], trial.user_attrs["lpw"])
    return sorted(found.values(), key=lambda entry: -entry[1])


def _confirm(search: Search, ranked: Sequence[tuple[Layout, float, float]], seeds: int, trials: int) -> dict[str, Any]:
    """The best of the first few on fresh seeds; the floor holds within the error there."""
    if not ranked:
        raise RunFailed(
            f"no layout of {trials} has an LPW mean of at least {search.floor}; more --trials, or a lower floor"
        )
    fresh = range(FRESH_SEED, FRESH_SEED + seeds)
    base = {seed: scores(search.run(search.confirm, None, seed)) for seed in fresh}
    candidates = []
    for layout, hpw, lpw in ranked[:CONFIRMED]:
        pairs = [search.measure(search.confirm, layout, seed, base[seed]) for seed in fresh]
        candidates.append((layout, hpw, lpw, pairs))

    def rank(candidate: tuple[Layout, float, float, list[tuple[float, float]]]) -> tuple[bool, float]:
        lpws = [pair[1] for pair in candidate[3]]
        return _mean(lpws) + 2 * _error(lpws) >= search.floor, _mean([pair[0] for pair in candidate[3]])

    layout, hpw, lpw, pairs = max(candidates, key=rank)
    columns = {"hpw": [pair[0] for pair in pairs], "lpw": [pair[1] for pair in pairs]}
    about = search.scenario.check()
    return {
        "schema": SCHEMA,
        "version": __version__,
        "scenario": about["name"],
        "chip": about["chip"],
        "determined_by": search.scenario.source().best_fingerprint(),
        "layout": asdict(layout),
        "lpw_floor": search.floor,
        "hpw_mean": _mean(columns["hpw"]),
        "lpw_mean": _mean(columns["lpw"]),
        "hpw_standard_error": _error(columns["hpw"]),
        "lpw_standard_error": _error(columns["lpw"]),
        "seeds": [{"seed": seed, "hpw": pair[0], "lpw": pair[1]} for seed, pair in zip(fresh, pairs)],
        "found": {
            "sampler": SAMPLER,
            "trials": trials,
            "seeds": search.seeds,
            "sets": search.sets,
            "trial": search.trial.describe(),
            "confirmed_on": search.confirm.describe(),
            "hpw_mean": hpw,
            "lpw_mean": lpw,
        },
    }


def _mean(values: Sequence[float]) -> float:
    return round(statistics.fmean(values), 4)


def _error(values: Sequence[float]) -> float:
    """Standard error of the mean; 0 for one seed, whose error is unknown."""
    return round(statistics.stdev(values) / math.sqrt(len(values)), 4) if len(values) > 1 else 0.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m waykeeper.best", description="Search the best static layout of a scenario."
    )
    parser.add_argument("scenario", help="built-in name, or the path of a file")
    parser.add_argument(
        "--lpw-floor", type=float, default=0.97, metavar="R", help="lowest LPW mean relative to `default` [0.97]"
    )
    parser.add_argument("--trials", type=int, default=200, metavar="N", help="layouts in all [200]")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds of each layout [1]")
    parser.add_argument(
        "--confirm-seeds", type=int, default=3, metavar="N", help="other seeds for the best layouts [3]"
    )
    parser.add_argument(
        "--sets", default="1/32", metavar="1/N|exact", help="share of the LLC's sets to simulate [1/32]"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes [1]")
    parser.add_argument("--resume", action="store_true", help="continue the search beside --out")
    parser.add_argument("--force", action="store_true", help="overwrite a result, and begin an earlier search again")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", metavar="FILE", help="result [NAME.best.json, beside a scenario's file]")
    return parser


def default_out(scenario: str) -> Path:
    """Where `waykeeper run --policy best` looks: beside a scenario's file; for a built-in name, in the current folder."""
    return Path(scenario).with_suffix(".best.json") if scenario.endswith(".toml") else Path(f"{scenario}.best.json")


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(words)
    out = Path(options.out) if options.out else default_out(options.scenario)
    names = ("lpw_floor", "trials", "seeds", "confirm_seeds", "sets", "jobs", "resume", "force")
    # Ended by another program it says what it keeps, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = best(options.scenario, out=out, **{name: getattr(options, name) for name in names})
    except BadInput as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    except RunFailed as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print(text_of(found))
    print(f"wrote {out}", file=sys.stderr)
    return 0


def text_of(found: dict[str, Any]) -> str:
    """The result for a terminal."""
    layout, lines = found["layout"], []
    lines += [f"{name:<16} {mask}" for name, mask in layout["masks"].items()]
    lines += [f"{'DCA ways':<16} {layout['dca_ways']}"] if layout["dca_ways"] else []
    lines += [f"{'DCA of ' + name:<16} {'on' if on else 'off'}" for name, on in layout["dca"].items()]
    means_ = f"HPW mean x{found['hpw_mean']:.3f} ±{found['hpw_standard_error']:.3f}"
    means_ += f", LPW mean x{found['lpw_mean']:.3f} ±{found['lpw_standard_error']:.3f}"
    lines.append(f"{means_} (standard error, {len(found['seeds'])} seeds that the search did not use)")
    return "\n".join([f"{found['scenario']}: best of {found['found']['trials']} layouts", *lines])


if __name__ == "__main__":
    sys.exit(main())
