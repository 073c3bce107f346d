"""Thesis Fig. 5.11: Redis beside the load generator."""

from waykeeper.repro import MEDIUM, Case, Figure, Panel, Points, Series, checks, claim
from waykeeper.repro.bands import EFFECT, SAME, same

from .common import BIG

SCENARIOS = {"Haswell": "thesis-redis-haswell", "Sandy Bridge": "thesis-redis-sandy-bridge"}
SETTINGS = {
    "default": {},
    "big": BIG,
    "caching": BIG | {"workload.load.touch": "always"},
    "single channel": {"memory_channels": 1},
}
LOADS = ["random", "single"]
WHY = (
    "neither the LLC nor memory delays Redis this much. Interrupts on other programs' cores would follow the "
    "command rate, but would also have slowed PARSEC's compute-bound programs, which the thesis found "
    "unaffected. The remaining explanation is a part of the kernel that Redis's sockets and the driver share"
)


class Fig511(Figure):
    id = "memload/fig5.11"
    title = "Redis beside the load generator"
    assumes = [
        "YCSB's mix on 100000 records replaces memtier, whose keys the thesis does not give",
        "the load generator's workers and their interrupts are pinned to the last core",
    ]

    def cases(self, quick):
        for machine, scenario in SCENARIOS.items():
            for setting, keys in SETTINGS.items():
                for pattern in ["noop", *LOADS]:
                    own = {"workload.load.pattern": pattern}
                    yield Case((machine, setting, pattern), scenario, keys | own)

    def panels(self, runs):
        for machine in SCENARIOS:
            settings = list(SETTINGS)
            curves = [Series(p, settings, [self._slower(runs, machine, s, p) for s in settings]) for p in LOADS]
            slowdowns = {
                "Haswell": [[13, 13], [41, 41]],
                "Sandy Bridge": [[None, None, None, 2.8], [None, None, None, 8.4]],
            }
            published = [
                Points(f"{pattern}, thesis", settings[: len(values)], values)
                for pattern, values in zip(LOADS, slowdowns[machine], strict=True)
            ]
            yield Panel(f"slowdown, {machine}", x="setting", y="%", series=curves, published=published)

    def _slower(self, runs, machine, setting, pattern):
        plain, loaded = (runs[machine, setting, p].workload("redis").throughput for p in ("noop", pattern))
        return 100 * (plain / loaded - 1)

    @claim(
        "MEMLOAD-F5.11-5",
        MEDIUM,
        "an ordering in eight settings, with 2 % as the least slowdown; nothing was fitted on it",
        why=WHY,
    )
    def single_is_slowest(self, runs):
        found = {}
        for machine in SCENARIOS:
            for setting in SETTINGS:
                random, single = (self._slower(runs, machine, setting, p) for p in LOADS)
                found[f"{machine}, {setting}: either load slows Redis by over {EFFECT.text}"] = (
                    min(random, single) > EFFECT.percent
                )
                if setting != "caching":
                    found[f"{machine}, {setting}: Redis is slowest beside single"] = single > random
        random, single = (self._slower(runs, "Haswell", "caching", p) for p in LOADS)
        found[f"Haswell, caching: the slowdowns by random and single differ by at most {SAME.text}"] = same(
            random, single
        )
        return checks(found)
