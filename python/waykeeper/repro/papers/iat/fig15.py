"""IAT Fig. 15: cost of the daemon per interval."""

from waykeeper.repro import WEAK, Case, Figure, claim, number

RARE_S, OFTEN_S = 1.0, 0.001
DURATION_S = 8
TENANTS = 16


class Fig15(Figure):
    id = "iat/fig15"
    title = "Cost of IAT's loop"
    assumes = [
        (
            "the time is that of our whole control loop on the virtual server on this host, including the reading "
            "of counters: the additional wall-clock time of intervals of 1 ms over intervals of 1 s. Registers "
            "of a real server take longer to read"
        ),
    ]

    def cases(self, quick):
        for interval_s in (RARE_S, OFTEN_S):
            yield Case(interval_s, _tenants(interval_s), policies=["iat"])

    @claim(
        "ISCA21-F15-1",
        WEAK,
        "wall time of our own loop on this host without registers to read; the limit is far above it",
    )
    def time_of_an_interval(self, runs):
        more_s = runs[OFTEN_S].head["wall_s"] - runs[RARE_S].head["wall_s"]
        intervals = DURATION_S / OFTEN_S - DURATION_S / RARE_S
        return number(max(0.0, more_s / intervals * 1e6))


def _tenants(interval_s):
    """One nearly idle tenant per core, so that the loop does most of the work."""
    idle = {"program": "x-mem", "working_set": "1 MiB", "gb_per_s": 0.001}
    return {
        "name": "iat-fig15",
        "time_factor": 20,
        "interval_s": interval_s,
        "duration_s": DURATION_S,
        "warmup_s": 1,
        "measure_s": 2,
        "policies": ["iat"],
        "workload": [{"name": f"tenant{core}", "cores": str(core), **idle} for core in range(TENANTS)],
    }
