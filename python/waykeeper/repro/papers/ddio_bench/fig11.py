"""ATC20 Fig. 11: write hit rate over cores and DDIO ways, 4096 descriptors in total."""

from waykeeper.repro import WEAK, Case, Figure, Panel, Points, Series, checks, claim, lacks, rising
from waykeeper.repro.bands import EFFECT

from .common import NIC, cores, ddio, write_hits

WAYS = [2, 4, 6, 8]
ARTIFACT = {1: [39, 87, 99.7, 100], 2: [25.7, 70.5, 96.3, 99.7], 4: [72.9, 97.7, 100, 100]}


class Fig11(Figure):
    id = "ddio-bench/fig11"
    title = "Write hit rate over cores and DDIO ways"
    assumes = [
        "the generator sends 98.5 Gb/s",
        "rings of two cores are full at the start, as they are in the artifact's two-core runs",
    ]

    def cases(self, quick):
        for count in (1, 2, 4):
            for ways in (2, 4, 8) if quick else WAYS:
                overrides = {
                    **NIC,
                    "workload.l2fwd.cores": cores(count),
                    "workload.l2fwd.start_delay_ms": 3 if count == 2 else 0,
                    "nic.nic0.ring": 4096 // count,
                    "knobs.dca_ways": ddio(ways),
                }
                yield Case((count, ways), "ddio-fig11", overrides)

    def _curve(self, runs, count):
        ways = sorted({ways for _, ways in runs})
        return ways, [write_hits(runs[count, w]) for w in ways]

    def panels(self, runs):
        curves = {count: self._curve(runs, count) for count in ARTIFACT}
        yield Panel(
            "PCIe write hit rate",
            x="DDIO ways",
            y="%",
            series=[Series(f"{count} cores", ways, hits) for count, (ways, hits) in curves.items()],
            published=[Points(f"{count} cores, artifact", WAYS, hits) for count, hits in ARTIFACT.items()],
        )

    @claim(
        "ATC20-F11-1",
        WEAK,
        "only the rings of two cores start full, so that they hit less; one core's curve was fitted",
    )
    def ways_help_as_cores_do(self, runs):
        curves = {count: self._curve(runs, count)[1] for count in ARTIFACT}
        more_cores = curves[4][0] - curves[2][0]
        more_ways = curves[2][1] - curves[2][0]
        return checks(
            {
                **{
                    f"write hit rate rises with the number of ways, {count} cores": rising(hits, EFFECT)
                    for count, hits in curves.items()
                },
                "with four cores more writes hit than with two": more_cores > 0,
                "with two cores, four ways instead of two bring at least half of this gain": not lacks(
                    more_ways, more_cores
                ),
            }
        )
