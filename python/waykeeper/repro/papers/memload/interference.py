"""Thesis s5.5.1: which programs DMA load slows down, and the effect of DMA that hits the LLC."""

from waykeeper.repro import MEDIUM, Case, Figure, Panel, Series, absent, checks, claim, lacks
from waykeeper.repro.bands import SAME

SCENARIOS = {"Haswell": "thesis-victim-haswell", "Sandy Bridge": "thesis-victim-sandy-bridge"}
# Mixtures that miss the LLC over 5 times per thousand instructions, and others.
HUNGRY = ["mcf", "lbm", "omnetpp"]
OTHERS = ["x264", "blender", "exchange2"]
CANNEAL = "mcf"
COST = {"Haswell": 5.5, "Sandy Bridge": 6.0}
"""Mean slowdown of canneal by the two patterns with the big buffer, per cent (MEMLOAD-F5.8-3 to F5.8-5)."""
DOUBLED = 2
"""Slowdown with caching relative to that with the big buffer on the machine with DDIO (MEMLOAD-S5.5-2)."""
LARGE = {"workload.load.buffer_blocks": 32768, "workload.load.resident": True}
SETTINGS = {
    "default": {},
    "big": LARGE,
    "caching": LARGE | {"workload.load.touch": "always"},
    "single channel": {"memory_channels": 1},
}


class Interference(Figure):
    id = "memload/interference"
    title = "Programs beside the load generator"
    assumes = [
        (
            "SPEC profiles replace PARSEC's programs; mcf, which follows pointers through a large graph, replaces "
            "canneal"
        ),
        (
            "the big buffer has 128 MiB instead of 1 GiB, because simulated memory is limited; this is still 6 "
            "times the LLC"
        ),
    ]

    def cases(self, quick):
        for machine, scenario in SCENARIOS.items():
            for victim in HUNGRY + OTHERS:
                for setting, keys in SETTINGS.items():
                    for pattern in ("noop", "random", "single"):
                        own = {"workload.victim.benchmark": victim, "workload.load.pattern": pattern}
                        yield Case((machine, victim, setting, pattern), scenario, keys | own)

    def panels(self, runs):
        for pattern in ("random", "single"):
            for machine in SCENARIOS:
                curves = [
                    Series(setting, HUNGRY + OTHERS, self._all(runs, machine, setting, pattern)) for setting in SETTINGS
                ]
                yield Panel(f"slowdown by {pattern}, {machine}", x="victim", y="%", series=curves)

    def _all(self, runs, machine, setting, pattern):
        return [self._slower(runs, machine, victim, setting, pattern) for victim in HUNGRY + OTHERS]

    def _slower(self, runs, machine, victim, setting, pattern):
        """Increase of the execution time over that without load, %."""
        plain, loaded = (runs[machine, victim, setting, p].workload("victim").throughput for p in ("noop", pattern))
        return 100 * (plain / loaded - 1)

    def _worst(self, runs, machine, victim):
        return max(self._slower(runs, machine, victim, s, p) for s in SETTINGS for p in ("random", "single"))

    @claim(
        "MEMLOAD-S5.5-1",
        MEDIUM,
        "an ordering of substitutes, chosen by their LLC misses; their slowdown could have been too small",
    )
    def hungry_programs_react(self, runs):
        found = {}
        for machine in SCENARIOS:
            hungry = {v: self._worst(runs, machine, v) for v in HUNGRY}
            others = {v: self._worst(runs, machine, v) for v in OTHERS}
            found |= {
                f"{machine}: {v} is over {SAME.text} slower in at least one setting": value > SAME.percent
                for v, value in hungry.items()
            }
            found |= {
                f"{machine}: {v} is at most {SAME.text} slower in every setting": value <= SAME.percent
                for v, value in others.items()
            }
            found[f"{machine}: every memory-bound program loses more than every other one"] = min(
                hungry.values()
            ) > max(others.values())
        return checks(found)

    @claim(
        "MEMLOAD-S5.5-2",
        MEDIUM,
        "a ratio above and below 1.5 on two machines; the victim is a substitute, nothing was fitted on it",
        why="with caching the generator's own reads slow the victim, because they fill the LLC and the memory bus "
        "on both machines; the thesis found no such effect on its Sandy Bridge",
    )
    def caching_doubles_the_cost_with_ddio_alone(self, runs):
        def mean(machine, setting):
            return sum(self._slower(runs, machine, CANNEAL, setting, p) for p in ("random", "single")) / 2

        big = {m: mean(m, "big") for m in SCENARIOS}
        for machine, slower in big.items():
            # The ratio of two slowdowns near zero is noise.
            if lacks(slower, COST[machine]):
                return absent(
                    f"with the big buffer the load slows the victim on {machine} by {slower:.2g} %, canneal by "
                    f"{COST[machine]:g} %"
                )
        growth = {m: mean(m, "caching") / big[m] for m in SCENARIOS}
        return checks(
            {
                "Haswell: caching adds at least half of the slowdown that the big buffer causes": not lacks(
                    growth["Haswell"] - 1, DOUBLED - 1
                ),
                "Sandy Bridge: caching adds less than half of it": lacks(growth["Sandy Bridge"] - 1, DOUBLED - 1),
            }
        )
