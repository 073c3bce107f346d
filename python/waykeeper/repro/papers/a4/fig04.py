"""A4 Fig. 4: effect of switching DCA off on X-Mem at four places and on DPDK-T."""

from waykeeper.repro import WEAK, Case, Figure, Panel, Points, Series, absent, checks, claim, lacks
from waykeeper.repro.bands import FAR, SAME, far_higher, nearly_all, raised, same, some

from .common import miss

MASKS = {"0:1": "0x600", "3:4": "0x0c0", "5:6": "0x030", "9:10": "0x003"}
LINE = 64
TWO_WAYS = 18 * 2048 * 2 * LINE
"""Bytes of two ways."""
MISSES_ON = {"0:1": 30.5, "3:4": 27, "5:6": 38.5, "9:10": 30}
"""The paper's LLC miss rate of X-Mem with DCA on, %."""


class Fig04(Figure):
    id = "a4/fig4"
    title = "DCA on and off"
    assumes = ["X-Mem's working set is 2368 KiB per thread, as in Fig. 3"]

    def cases(self, quick):
        for place, mask in MASKS.items():
            for off in (False, True):
                overrides = {"workload.x-mem.mask": mask, "knobs.dca_off": ["nic0"] if off else []}
                yield Case((place, off), "a4-fig4", overrides)

    def panels(self, runs):
        places = list(MASKS)
        for what, y, on, off in (
            (lambda run: miss(run, "x-mem"), "X-Mem's LLC miss rate, %", list(MISSES_ON.values()), [27.5] * 4),
            (
                lambda run: run.workload("dpdk-t").latency_mean_us,
                "DPDK-T's mean latency, us",
                [482, 381, 540, 715],
                [921] * 4,
            ),
            (lambda run: run.workload("dpdk-t").latency_p99_us, "DPDK-T's p99 latency, us", None, None),
        ):
            series = [
                Series(f"DCA {'off' if dark else 'on'}", places, [what(runs[place, dark]) for place in places])
                for dark in (False, True)
            ]
            published = [] if on is None else [Points("on, paper", places, on), Points("off, paper", places, off)]
            yield Panel(
                y.split(",")[0], x="X-Mem's ways, counted from the left", y=y, series=series, published=published
            )

    def _contention(self, runs, place):
        """X-Mem's misses relative to those at the quiet place, with DCA on and off."""
        return [miss(runs[place, off], "x-mem") / miss(runs["3:4", off], "x-mem") for off in (False, True)]

    def _lacking(self, place, on):
        """What is missing if contention with DCA on is less than half of the paper's; otherwise empty."""
        paper = MISSES_ON[place] / MISSES_ON["3:4"] - 1
        if not lacks(on - 1, paper):
            return ""
        return (
            f"with DCA on X-Mem's misses at way[{place}] are {100 * (on - 1):.2g} % above those at the quiet place, "
            f"in the paper {100 * paper:.2g} %"
        )

    @claim(
        "ISCA25-F4-1",
        WEAK,
        "restates a rule: with DCA off no line has the I/O mark, so none moves to the inclusive ways",
    )
    def no_directory_contention_without_dca(self, runs):
        on, off = self._contention(runs, "9:10")
        if lacking := self._lacking("9:10", on):
            return absent(lacking)
        return checks(
            {
                "misses are raised at way[9:10] with DCA on": raised(on, 1),
                "they are not raised with DCA off": same(off, 1),
            }
        )

    @claim(
        "ISCA25-F4-2",
        WEAK,
        "restates a rule: with DCA off no device writes into the DCA ways, and no other mask covers them",
    )
    def no_latent_contention_without_dca(self, runs):
        on, off = self._contention(runs, "0:1")
        if lacking := self._lacking("0:1", on):
            return absent(lacking)
        return checks(
            {
                "misses are raised at way[0:1] with DCA on": raised(on, 1),
                "they are not raised with DCA off": same(off, 1),
            }
        )

    @claim(
        "ISCA25-F4-3",
        WEAK,
        "with DCA off packets are read from memory, and that cost was fitted on A4's latencies with DCA off",
    )
    def without_dca_latency_is_far_higher(self, runs):
        tails = {
            place: [runs[place, off].workload("dpdk-t").latency_p99_us for off in (False, True)] for place in MASKS
        }
        return checks(
            {
                f"p99 is over {FAR.text} higher with DCA off at way[{place}]": far_higher(off, on)
                for place, (on, off) in tails.items()
            }
        )

    @claim("ISCA25-F4-4", WEAK, "same numbers and statements as ISCA25-F4-1")
    def lines_that_are_read_move(self, runs):
        on, off = self._contention(runs, "9:10")
        return checks(
            {
                "packets raise misses in ways in which neither devices nor DPDK-T may allocate": raised(on, 1),
                "packets that devices wrote past the LLC do not": same(off, 1),
            }
        )

    @claim(
        "ISCA25-S2-5",
        WEAK,
        "restates rules: with DCA off a device write invalidates the line, and clean lines that MLCs evict enter the LLC",
        why="MLCs drop most clean lines that were not read again (microarchitecture.md 4), so few lines of packets enter the LLC",
    )
    def without_dca_lines_come_back_from_the_mlc(self, runs):
        dpdk = runs["3:4", True].workload("dpdk-t")
        # Memory's traffic is counted for the socket only; a line that DPDK-T reads from memory is one of its LLC misses.
        held, read = dpdk.llc_occupancy_bytes, LINE * dpdk.llc_misses_per_s
        _, contention = self._contention(runs, "5:6")
        return checks(
            {
                (
                    "MLCs evict lines of packets into the LLC, which nothing else fills: DPDK-T holds over a tenth of its two ways"
                ): some(held / TWO_WAYS),
                (
                    "device writes invalidate what is left of the previous packet: DPDK-T reads over 90 % of the bytes that arrive "
                    "from memory"
                ): nearly_all(read / runs["3:4", True].system.inbound_bytes_per_s),
                f"misses at way[5:6] are within {SAME.text} of those at the quiet place": same(contention, 1),
            }
        )
