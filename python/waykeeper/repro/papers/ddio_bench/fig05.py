"""ATC20 Fig. 5: hit rates of device writes and reads over the number of DDIO ways."""

from waykeeper.repro import WEAK, Case, Figure, Panel, Points, Series, checks, claim, rising, span
from waykeeper.repro.bands import EFFECT

from .common import NIC, ddio, link_gbps, read_hits, write_hits


class Fig05(Figure):
    id = "ddio-bench/fig5"
    title = "Device hit rates over DDIO ways"
    assumes = ["the generator sends 98.5 Gb/s"]

    def cases(self, quick):
        for ways in (2, 3, 4, 6, 11) if quick else range(2, 12):
            yield Case(ways, "ddio-fig5", {**NIC, "knobs.dca_ways": ddio(ways)})

    def panels(self, runs):
        ways = runs.keys()
        yield Panel(
            "hit rates",
            x="DDIO ways",
            y="%",
            series=[
                Series("PCIe write", ways, [write_hits(runs[w]) for w in ways]),
                Series("PCIe read", ways, [read_hits(runs[w]) for w in ways]),
            ],
            published=[Points("PCIe write, artifact", [2, 3, 4, 5, 6], [63, 88, 97, 99.6, 99.9])],
        )

    @claim("ATC20-F5-1", WEAK, "more ways hit more in any model of a cache; the write hits of this sweep were fitted")
    def more_ways_hit_more(self, runs):
        return checks(
            {
                "write hit rate rises with the number of ways": rising(
                    [write_hits(runs[w]) for w in runs.keys()], EFFECT
                ),
                "read hit rate rises with the number of ways": rising(
                    [read_hits(runs[w]) for w in runs.keys()], EFFECT
                ),
            }
        )

    @claim("ATC20-F5-2", WEAK, "calibrated: the time of one send queue was fitted on these packet rates of one core")
    def throughput(self, runs):
        rates = [link_gbps(runs[w].workload("l2fwd").throughput, 1024) for w in runs.keys()]
        return span(min(rates), max(rates))
