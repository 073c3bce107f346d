"""A4 Fig. 8b: with DCA off for the SSDs, storage needs few ways."""

from waykeeper.repro import WEAK, Case, Figure, Panel, Points, Series, about_equal, checks, claim, falling, span
from waykeeper.repro.bands import SAME

from .common import miss

MASKS = {5: "0x1e0", 4: "0x1c0", 3: "0x180", 2: "0x100"}


class Fig08b(Figure):
    id = "a4/fig8b"
    title = "X-Mem's misses over the ways of the storage program"
    assumes = ["X-Mem's working set is 4 MiB per thread with random accesses, the only setting that fits Fig. 8b"]

    def cases(self, quick):
        for last, mask in MASKS.items():
            yield Case(last, "a4-fig8b", {"workload.fio.mask": mask})

    def panels(self, runs):
        ends = sorted(MASKS)
        yield Panel(
            "X-Mem's LLC miss rate",
            x="n: FIO has way[2:n]",
            y="%",
            series=[Series("ours", ends, [miss(runs[n], "x-mem") for n in ends])],
            published=[Points("paper", [5, 4, 3, 2], [35.2, 29.3, 24.1, 20.3])],
        )
        yield Panel(
            "FIO's throughput",
            x="n: FIO has way[2:n]",
            y="GB/s",
            series=[Series("ours", ends, [runs[n].workload("fio").throughput / 1e9 for n in ends])],
        )

    @claim(
        "ISCA25-F8B-1",
        WEAK,
        "calibrated: X-Mem's working set and the rule for streaming lines were fitted on this curve",
        why="at n=2 fewer of FIO's lines enter X-Mem's ways in the model than on the chip",
    )
    def fewer_ways_fewer_misses(self, runs):
        curve = [miss(runs[n], "x-mem") for n in (5, 4, 3, 2)]
        return span(curve[-1], curve[0], shape=falling(curve))

    @claim("ISCA25-F8B-2", WEAK, "the drives limit the throughput; no number of ways can move it")
    def storage_is_unaffected(self, runs):
        return checks({f"within {SAME.text}": about_equal([runs[n].workload("fio").throughput for n in MASKS], SAME)})

    @claim("ISCA25-F8B-3", WEAK, "arithmetic of the scenario's keys: threads, queue depth and block size")
    def buffers_exceed_ten_megabytes(self, runs):
        from waykeeper import Scenario
        from waykeeper.repro import number

        scenario = Scenario.load("a4-fig8b").to_dict()
        fio = next(workload for workload in scenario["workload"] if workload["name"] == "fio")
        threads, depth, block_mb = 4, 32, 2 * 2**20 / 1e6
        assert fio["block"] == "2M" and fio["cores"] == "0-3"
        return number(threads * depth * block_mb)
