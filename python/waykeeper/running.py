"""Running a scenario in this process."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from tqdm.auto import tqdm

from . import _native
from .own_policy import Policy
from .results import Curve, Load, Run, load
from .scenario import Scenario, as_scenario

AnyScenario = Scenario | str | os.PathLike[str] | Mapping[str, Any]


def run(
    scenario: AnyScenario,
    policies: Iterable[str | type[Policy]] = (),
    *,
    seed: int = 1,
    seeds: int = 1,
    sets: str = "1/32",
    duration_s: float | None = None,
    warmup_s: float | None = None,
    time_factor: float | None = None,
    sample_seed: int | None = None,
    extrapolate: bool = False,
    looks_every_s: float | None = None,
    threads: int = 0,
    keep: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Run | Curve:
    """Runs a scenario under policies; returns a `Run`, or a `Curve` if the scenario sweeps keys.

    * `policies`: names or subclasses of `Policy`; if empty, the scenario's own list.
    * `seeds`: numbers are means over this many seeds, beginning with `seed`.
    * `sets`: fraction of the LLC's sets that is simulated, `"1/32"` or `"exact"`.
    * `duration_s`, `warmup_s`: seconds of the server's clock.
    * `extrapolate`: whether an interval before the measured stretch that repeats the one before is simulated in part only.
    * `looks_every_s`: let the control loop put the layout as found back for 4 intervals, at most every so many seconds, to
      measure what each policy is worth (`PolicyRun.worth`); the results of policies lose by these intervals.
    * `threads`: number of simulations that run in parallel; 0 is one per core.
    * `keep`: a folder that keeps each simulation when it ends, so that the same call after Ctrl-C continues. A simulation is
      taken from it if all that determines it is the same. Runs under your own policies are not kept.
    * `progress`: whether to show a progress bar; by default only on a terminal. It appears after one second.

    The same scenario, seed and version give the same numbers on any machine. Raises `BadInput` for invalid arguments and
    scenarios, `RunFailed` for a simulation that stopped, and every exception that your own policy raises.
    """
    scenario = as_scenario(scenario)
    names, own = check_policies(policies)
    options = _options(names, seed, seeds, sets, duration_s, warmup_s, time_factor, sample_seed, threads)
    options["extrapolate"] = bool(extrapolate)
    options["looks_every_s"] = looks_every_s
    options["keep"] = _folder(keep)
    with _Bar(scenario.file, progress) as bar:
        text, series, notes = _native.run(scenario.source(), options, own, bar.show)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return load(text, series)


def find_load(
    scenario: AnyScenario,
    policies: Iterable[str] = (),
    *,
    nic: str | None = None,
    zero_loss: bool = False,
    seed: int = 1,
    seeds: int = 1,
    sets: str = "1/32",
    duration_s: float | None = None,
    warmup_s: float | None = None,
    threads: int = 0,
    keep: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Load:
    """The highest load of a NIC that the scenario sustains, by bisection.

    A load is sustained if no packet is lost and p99 is at most five times that at a tenth of the line rate (the knee,
    IDIO's MSL). With `zero_loss` only the loss counts, not the latency (RFC 2544). `nic` may be left out if there is only
    one. `keep` is as in `run`.
    """
    scenario = as_scenario(scenario)
    options = _options(list(policies), seed, seeds, sets, duration_s, warmup_s, None, None, threads)
    options["keep"] = _folder(keep)
    with _Bar(scenario.file, progress) as bar:
        text, notes = _native.find_load(scenario.source(), options, nic, zero_loss, bar.show)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return Load(text)


def _folder(keep: str | os.PathLike[str] | None) -> str | None:
    """The folder of kept runs; it is made here, so that a wrong one is noticed before the first simulation."""
    if keep is None:
        return None
    try:
        os.makedirs(keep, exist_ok=True)
    except OSError as why:
        raise _native.BadInput(f"keep: {os.fspath(keep)} cannot be made: {why.strerror}; name a folder") from why
    return os.fspath(keep)


def _options(
    policies: list[str],
    seed: int,
    seeds: int,
    sets: str,
    duration_s: float | None,
    warmup_s: float | None,
    time_factor: float | None,
    sample_seed: int | None,
    threads: int,
) -> dict[str, Any]:
    for name, value in (("seed", seed), ("seeds", seeds), ("threads", threads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _native.BadInput(f"{name} is {value!r}; it must be a whole number of at least 0")
    return {
        "policies": policies,
        "seed": seed,
        "seeds": seeds,
        "sample_seed": sample_seed,
        "sets": str(sets),
        "extrapolate": False,
        "duration_s": duration_s,
        "warmup_s": warmup_s,
        "time_factor": time_factor,
        "looks_every_s": None,
        "threads": threads,
        "keep": None,
    }


def check_policies(policies: Iterable[str | type[Policy]]) -> tuple[list[str], list[tuple[str, Any]]]:
    """Names in order, and a factory for each of the caller's own classes. Raises `BadInput` for anything else."""
    if isinstance(policies, str):
        policies = [policies]
    names: list[str] = []
    own: list[tuple[str, Any]] = []
    for policy in policies:
        if isinstance(policy, str):
            # Called only to check the name: it raises for an unknown one. `best` is a layout, not a policy of the list.
            if policy != "best":
                _native.policy_description(policy)
            names.append(policy)
        elif isinstance(policy, type) and issubclass(policy, Policy):
            if not (isinstance(policy.name, str) and policy.name):
                raise _native.BadInput(f"{policy.__name__}.name is {policy.name!r}; it must be a text")
            names.append(policy.name)
            own.append((policy.name, policy.from_settings))
        else:
            raise _native.BadInput(
                f"a policy is {policy!r}; it must be a name or a subclass of waykeeper.Policy (the class, not an instance)"
            )
    return names, own


def shows_progress(wanted: bool | None) -> bool:
    """Whether a progress bar is shown: as wanted, else on a terminal that moves its cursor."""
    return wanted if wanted is not None else sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class _Bar:
    """A progress bar that appears after one second."""

    def __init__(self, title: str, wanted: bool | None) -> None:
        off = not shows_progress(wanted)
        bar_format = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
        self._bar = tqdm(total=1.0, desc=title, disable=off, delay=1.0, leave=False, bar_format=bar_format)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, part: float) -> None:
        """Moves it to `part`, 0..1."""
        self._bar.update(max(0.0, part - self._bar.n))
