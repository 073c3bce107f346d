"""Shared by the thesis's figures: its two machines, its patterns and the numbers of workers."""

from waykeeper.repro import Case
from waykeeper.repro.bands import not_lower

SCENARIOS = {"Haswell": "thesis-load-haswell", "Sandy Bridge": "thesis-load-sandy-bridge"}
MACHINES = list(SCENARIOS)
PATTERNS = [
    ("random", "write"),
    ("single", "write"),
    ("random", "read"),
    ("single", "read"),
    ("flush", "write"),
]
WORKERS = list(range(1, 9))
MIB = 2**20
BIG = {"workload.load.buffer_blocks": 262144, "workload.load.resident": True}
"""1 GiB, as after the first pass over the buffer: its pages are allocated."""
DRIVE = (
    "the drive is that of the author's logs, an Intel SSD 750 of 400 GB: latency, command rate and write rate "
    "are from its data sheet; reads of a formatted drive run at the rate of the link"
)
QUIRK = "the program's zero-based block count is reproduced: a command moves one block more than the program counts"


def load(machine, pattern, operation, workers=1, sets="1/32", **more):
    """A case with only the load generator; `more` are its other keys."""
    overrides = {
        "workload.load.pattern": pattern,
        "workload.load.operation": operation,
        "workload.load.workers": workers,
    }
    key = (machine, pattern, operation, workers)
    return Case(key, SCENARIOS[machine], overrides | more, sets=sets)


def scaling():
    """Every pattern with every number of workers on both machines: Figs. 5.1 and 5.2."""
    for machine in MACHINES:
        for pattern, operation in PATTERNS:
            for workers in WORKERS:
                yield load(machine, pattern, operation, workers)


def curve(runs, machine, pattern, operation, metric):
    """A metric of the load over the number of workers."""
    return [getattr(runs[machine, pattern, operation, n].workload("load"), metric) for n in WORKERS]


def name(pattern, operation):
    return "flush" if pattern == "flush" else f"{pattern}-{operation}"


def saturated(values):
    """The smallest number of workers whose value is the same as the highest one."""
    return next(n for n, value in zip(WORKERS, values, strict=True) if not_lower(value, max(values)))
