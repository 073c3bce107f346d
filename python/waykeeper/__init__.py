"""A simulated server: its shared last-level cache, its devices and the policies that manage them.

    import waykeeper as wk
    result = wk.run("a4-hpw-heavy", policies=["default", "a4"])
    result.to_pandas()

* `Scenario` describes what runs; `run` runs it in this process.
* `run_many` and `sweep` run many scenarios on all cores.
* `Policy` is the base class of your own policies.
* `python -m waykeeper.repro` reproduces the papers' figures.
"""

from ._native import BadInput, RunFailed, __version__
from .catalog import chip, chips, policies, policy, rules, scenarios
from .own_policy import Decision, Event, Interval, Plan, Policy, Server, Workload
from .parallel import Failure, Work, run_many
from .recording import Recording, read_recording
from .results import Curve, Load, PolicyRun, Run, WayMap, load
from .running import find_load, run
from .scenario import Scenario
from .sweeping import SweepResult, sweep

__all__ = [
    "BadInput",
    "Curve",
    "Decision",
    "Event",
    "Failure",
    "Interval",
    "Load",
    "Plan",
    "Policy",
    "PolicyRun",
    "Recording",
    "Run",
    "RunFailed",
    "Scenario",
    "Server",
    "SweepResult",
    "WayMap",
    "Work",
    "Workload",
    "__version__",
    "chip",
    "chips",
    "find_load",
    "load",
    "policies",
    "policy",
    "read_recording",
    "rules",
    "run",
    "run_many",
    "scenarios",
    "sweep",
]
