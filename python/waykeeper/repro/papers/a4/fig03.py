"""A4 Fig. 3: X-Mem's two-way mask slides over the LLC beside packets that no core reads (a) and packets that cores
read (b)."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Points, Series, checks, claim
from waykeeper.repro.bands import raised

from .common import PLACES, SLIDES, memory, miss

QUICK = (0, 1, 3, 5, 8, 9)


class Fig03(Figure):
    id = "a4/fig3"
    title = "Contention over the place of X-Mem's two ways"
    assumes = [
        "X-Mem's working set is 2368 KiB per thread, the only size that fits Figs. 3 and 4",
        "in (b) rings are full for the first 3 ms, as when a program starts",
    ]

    def cases(self, quick):
        for index in QUICK if quick else range(10):
            for name, scenario in (("nt", "a4-fig3a"), ("t", "a4-fig3b")):
                yield Case((name, index), scenario, {"workload.x-mem.mask": SLIDES[index]})
        for migration in ("clean-copy", "no-copy"):
            overrides = {"workload.x-mem.mask": SLIDES[9], "model.migration": migration}
            yield Case(("rule", migration), {**_scenario("a4-fig3b"), "model": {"migration": migration}}, overrides)

    def _places(self, runs):
        return sorted(index for name, index in runs if name == "nt")

    def panels(self, runs):
        places = self._places(runs)
        names = [PLACES[index] for index in places]
        yield Panel(
            "X-Mem's LLC miss rate",
            x="X-Mem's ways, counted from the left",
            y="%",
            series=[
                Series("DPDK-NT (a)", names, [miss(runs["nt", index], "x-mem") for index in places]),
                Series("DPDK-T (b)", names, [miss(runs["t", index], "x-mem") for index in places]),
            ],
            published=[
                Points("(a), paper", [PLACES[i] for i in (0, 1, 3, 8, 9)], [39, 29, 27.3, 27.6, 27.3]),
                Points("(b), paper", PLACES, [32, 27, 27, 27, 33, 38.5, 28, 27, 30, 29]),
            ],
        )
        yield Panel(
            "memory bandwidth",
            x="X-Mem's ways, counted from the left",
            y="GB/s",
            series=[
                Series("DPDK-NT (a)", names, [memory(runs["nt", index]) for index in places]),
                Series("DPDK-T (b)", names, [memory(runs["t", index]) for index in places]),
            ],
            published=[
                Points("(a), paper", [PLACES[i] for i in (0, 1, 3, 8, 9)], [16.5, 14.6, 13.6, 13.9, 14]),
                Points("(b), paper", PLACES, [13.6, 11.5, 10.9, 10.9, 12.3, 15, 11.5, 10.7, 19.1, 20.9]),
            ],
        )

    def _raised(self, runs, name):
        """Whether X-Mem misses more at each place than at the quiet place way[3:4]. In the paper's figures the least raised place,
        way[1:2] in (a), is 6 % above the quiet one, and the most noisy quiet place, way[6:7] in (b), 4 %."""
        quiet = miss(runs[name, 3], "x-mem")
        return {index: raised(miss(runs[name, index], "x-mem"), quiet) for index in self._places(runs)}

    @claim(
        "ISCA25-F3A-1",
        MEDIUM,
        "an order of places that the DCA mask gives; X-Mem's working set was fitted on this figure",
        why="at way[1:2] evicted lines of the model find space in the free half of the mask; the paper's curve is "
        "raised by 6 % there",
    )
    def only_latent_contention_without_readers(self, runs):
        first, second = (miss(runs["nt", index], "x-mem") for index in (0, 1))
        places = self._raised(runs, "nt")
        rest = [index for index in places if index > 1]
        return checks(
            {
                "misses are raised at way[0:1]": places[0],
                "they are raised at way[1:2], but less": places[1] and second < first,
                "they are raised at no other place": not any(places[index] for index in rest),
                "memory bandwidth is highest at way[0:1]": memory(runs["nt", 0])
                == max(memory(runs["nt", index]) for index in places),
            }
        )

    @claim(
        "ISCA25-F3B-1",
        MEDIUM,
        "an order of six places; the chance of a forced migration was fitted on the one at way[9:10]",
        why="the regions are as wide as the model's evictions reach; which places beside a region are raised is not fitted",
    )
    def three_regions_with_readers(self, runs):
        places = self._raised(runs, "t")
        return checks(
            {
                "misses are raised at way[0:1]": places[0],
                "they are not raised between this region and the next, at way[2:3]": not places.get(2, False),
                "they are raised at way[5:6]": places[5],
                "they are not raised between this region and the next, at way[7:8]": not places.get(7, False),
                "they are raised at way[9:10]": places[9],
            }
        )

    @claim("ISCA25-F3B-2", WEAK, "both statements are parts of ISCA25-F3A-1 and ISCA25-F3B-1")
    def the_third_region_needs_readers(self, runs):
        return checks(
            {
                "misses are raised at way[9:10] with DPDK-T": self._raised(runs, "t")[9],
                "they are not raised there with DPDK-NT": not self._raised(runs, "nt")[9],
            }
        )

    @claim("ISCA25-S2-2", WEAK, "restates a rule: the run switches the model's own rule for migrated copies on and off")
    def lines_in_both_caches_are_in_the_inclusive_ways(self, runs):
        quiet = miss(runs["t", 3], "x-mem")
        with_copy, without = (miss(runs["rule", rule], "x-mem") for rule in ("clean-copy", "no-copy"))
        return checks(
            {
                (
                    "lines that cores and devices share raise misses at way[9:10], which is in no other program's mask"
                ): raised(with_copy, quiet),
                "misses are not raised there when these lines leave no copy in the LLC": not raised(without, quiet),
            }
        )


def _scenario(name):
    from waykeeper import Scenario

    return Scenario.load(name).point().to_dict() | {"sweep": []}
