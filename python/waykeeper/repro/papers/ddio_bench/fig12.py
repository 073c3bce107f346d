"""ATC20 Fig. 12: p99 of a stateful chain over load imbalance and DDIO ways, 18 cores."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Series, absent, checks, claim, lacks, number, span
from waykeeper.repro.bands import EFFECT

from .common import ddio, link_gbps, mean_bytes, reduction

WAYS = [2, 4, 6, 8]
EVEN, UNEVEN = 1.69, 2.78
GAIN = 21
"""Reduction of p99 by more ways at the larger imbalance, percent (ATC20-F12-1)."""


class Fig12(Figure):
    id = "ddio-bench/fig12"
    title = "Tail latency of a chain over load imbalance and DDIO ways"
    assumes = [
        "the campus trace is replaced by three packet sizes with CacheDirector's shares, 981 B on average",
        "the load of the busiest queue is published; the loads of the other queues fall as a power of their rank",
        "the chain takes 0.73 us per packet, so that its throughput is 94 Gb/s at the larger imbalance",
        (
            "480 us of every latency are spent in the generator's own queue: Table 2's medians at line rate are "
            "499 and 501 us"
        ),
    ]

    def cases(self, quick):
        for imbalance in (EVEN, UNEVEN):
            for ways in (2, 8) if quick else WAYS:
                overrides = {"nic.nic0.imbalance": imbalance, "knobs.dca_ways": ddio(ways)}
                yield Case((imbalance, ways), "ddio-fig12", overrides)

    def panels(self, runs):
        ways = sorted({ways for _, ways in runs})
        curves = [Series(f"imbalance {i}", ways, [_p99(runs[i, w]) for w in ways]) for i in (EVEN, UNEVEN)]
        yield Panel("p99 latency", x="DDIO ways", y="us", series=curves)

    def _gain(self, runs, imbalance):
        """The largest reduction of p99 by more ways, in per cent."""
        more = [ways for one, ways in runs if one == imbalance and ways > 2]
        return max(reduction(_p99(runs[imbalance, 2]), _p99(runs[imbalance, ways])) for ways in more)

    @claim(
        "ATC20-F12-1",
        MEDIUM,
        "latency outside the server and throughput are calibrated; the gain from more ways is free",
        why="in ours a packet waits 0.19 ms in a full ring of 256 packets, too short to be evicted from two ways "
        "at 100 Gb/s. The chain reads headers only, so more ways raise hit rates (54 to 97 %) but do not "
        "shorten its time. In the paper packets wait longer: p99 is 595 us and more",
    )
    def ways_help_the_uneven(self, runs):
        return number(self._gain(runs, UNEVEN))

    @claim("ATC20-F12-2", MEDIUM, "wide band: a change of up to 5 % passes, if more ways help at the larger imbalance")
    def ways_hardly_help_the_even(self, runs):
        uneven = self._gain(runs, UNEVEN)
        if lacks(uneven, GAIN):
            return absent(f"at imbalance {UNEVEN} more ways change p99 by {0 - uneven:.2g} %, the paper has -{GAIN} %")
        return number(self._gain(runs, EVEN))

    @claim("ATC20-F12-3", WEAK, "calibrated: the work per packet was fitted on 94 Gb/s; the other end is the line rate")
    def throughput(self, runs):
        rates = [link_gbps(runs[i, 2].workload("chain").throughput, mean_bytes()) for i in (UNEVEN, EVEN)]
        return span(min(rates), max(rates))

    @claim(
        "ATC20-F12-4",
        WEAK,
        "same finding as ATC20-F12-1 and ATC20-F12-2: the difference of their numbers",
        why="see ATC20-F12-1: p99 falls at neither imbalance",
    )
    def the_gain_grows_with_imbalance(self, runs):
        return checks(
            {
                f"more ways reduce p99 by over {EFFECT.points} more at the larger imbalance": self._gain(runs, UNEVEN)
                - self._gain(runs, EVEN)
                > EFFECT.percent
            }
        )


def _p99(run):
    return run.workload("chain").latency_p99_us
