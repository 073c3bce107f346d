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
    threads: int = 0,
    progress: bool | None = None,
) -> Run | Curve:
    """Runs a scenario under policies and returns what came out: a `Run`, or a `Curve` if the scenario sweeps keys.

    `policies` are names or subclasses of `Policy`; the scenario's own list if empty. Numbers are means over `seeds`
    seeds from `seed` on. `sets` is the share of the LLC's sets that is simulated, `"1/32"` or `"exact"`. `duration_s` and
    `warmup_s` are seconds on the server's clock. `threads` simulations run at a time, 0 is one per core. `progress` shows
    a bar; by default if a person looks and it takes over a second.

    The same scenario, seed and version give the same numbers on any machine. Raises `BadInput` for what the caller got
    wrong, `RunFailed` for a simulation that stopped, and whatever a policy of one's own raised.
    """
    scenario = as_scenario(scenario)
    names, own = check_policies(policies)
    options = _options(names, seed, seeds, sets, duration_s, warmup_s, time_factor, sample_seed, threads)
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
    progress: bool | None = None,
) -> Load:
    """The highest load of a NIC that the scenario sustains, by bisection.

    Sustained is: p99 at most five times that at a tenth of the line rate and no loss (the knee, IDIO's MSL); with
    `zero_loss` no loss whatever latency does (RFC 2544). `nic` may be left out if there is one only.
    """
    scenario = as_scenario(scenario)
    options = _options(list(policies), seed, seeds, sets, duration_s, warmup_s, None, None, threads)
    with _Bar(scenario.file, progress) as bar:
        return Load(_native.find_load(scenario.source(), options, nic, zero_loss, bar.show))


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
        "duration_s": duration_s,
        "warmup_s": warmup_s,
        "time_factor": time_factor,
        "threads": threads,
    }


def check_policies(policies: Iterable[str | type[Policy]]) -> tuple[list[str], list[tuple[str, Any]]]:
    """Names in order, and for each class of the caller's own what makes one. Raises `BadInput` for anything else."""
    if isinstance(policies, str):
        policies = [policies]
    names: list[str] = []
    own: list[tuple[str, Any]] = []
    for policy in policies:
        if isinstance(policy, str):
            # Describes nothing here: it refuses a name that is none.
            _native.policy_description(policy)
            names.append(policy)
        elif isinstance(policy, type) and issubclass(policy, Policy):
            if not (isinstance(policy.name, str) and policy.name):
                raise _native.BadInput(f"{policy.__name__}.name is {policy.name!r}; it must be a text")
            names.append(policy.name)
            own.append((policy.name, policy.from_settings))
        else:
            raise _native.BadInput(
                f"a policy is {policy!r}; it must be a name or a subclass of waykeeper.Policy (the class, not an object)"
            )
    return names, own


class _Bar:
    """A progress bar that appears only when it is worth it."""

    def __init__(self, title: str, wanted: bool | None) -> None:
        off = not wanted if wanted is not None else not sys.stderr.isatty()
        bar_format = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
        self._bar = tqdm(total=1.0, desc=title, disable=off, delay=1.0, leave=False, bar_format=bar_format)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, part: float) -> None:
        """Moves it to `part`, 0..1."""
        self._bar.update(max(0.0, part - self._bar.n))
