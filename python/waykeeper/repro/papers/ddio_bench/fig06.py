"""ATC20 Figs. 6 and 7: hit rates, packet rate and throughput over descriptors and packet size, one core."""

from waykeeper.repro import (
    MEDIUM,
    WEAK,
    Case,
    Figure,
    Panel,
    Points,
    Series,
    about_equal,
    checks,
    claim,
    falling,
    number,
    rising,
)
from waykeeper.repro.bands import EFFECT, SAME

from .common import NIC, link_gbps, read_hits, write_hits

RINGS = [128, 256, 512, 1024, 2048, 4096]
SIZES = [60, 124, 252, 508, 1024, 1500]
"""Bytes; 64-, 128-, 256- and 512-B frames without their checksum."""
SMALL = [60, 124, 252]


class Fig06(Figure):
    id = "ddio-bench/fig6"
    title = "Hit rates over descriptors and packet size, and throughput of one core"
    assumes = ["the generator sends 98.5 Gb/s"]

    def cases(self, quick):
        for size in SIZES:
            for ring in (128, 1024, 4096) if quick else RINGS:
                overrides = {**NIC, "nic.nic0.packet_bytes": size, "nic.nic0.ring": ring}
                yield Case((size, ring), "ddio-fig6", overrides)

    def _rings(self, runs):
        return sorted({ring for _, ring in runs})

    def panels(self, runs):
        rings = self._rings(runs)
        published = {
            1500: [97.9, 97.8, 96.7, 90.8, 80.1, 39.3],
            1024: [100, 98.9, 98.3, 95.9, 89, 63],
        }
        yield Panel(
            "Fig. 6: PCIe write hit rate",
            x="RX descriptors",
            y="%",
            series=[Series(f"{size} B", rings, [write_hits(runs[size, ring]) for ring in rings]) for size in SIZES[2:]],
            published=[Points(f"{size} B, artifact", RINGS, points) for size, points in published.items()],
            log_x=True,
        )
        packets = [_pps(runs[size, rings[-1]]) / 1e6 for size in SIZES]
        yield Panel(
            "Fig. 7a: packets that one core forwards",
            x="packet, bytes",
            y="million/s",
            series=[Series("ours", SIZES, packets)],
            published=[Points("artifact", SIZES[2:], [11.9, 15.8, 10.3, 7.5])],
        )
        rates = [link_gbps(_pps(runs[size, rings[-1]]), size) for size in SIZES]
        yield Panel("Fig. 7b: throughput", x="packet, bytes", y="Gb/s", series=[Series("ours", SIZES, rates)])

    @claim(
        "ATC20-F6-1",
        WEAK,
        "a larger footprint hits less in any model of a cache; the write hits of this sweep were fitted",
    )
    def descriptors_cost_hits(self, runs):
        curves = {}
        for size in (1024, 1500):
            for name, hits in (("write", write_hits), ("read", read_hits)):
                curve = [hits(runs[size, ring]) for ring in self._rings(runs)]
                curves[f"{name} hit rate falls with the number of descriptors, {size} B"] = falling(curve, EFFECT)
        return checks(curves)

    @claim(
        "ATC20-F6-2",
        MEDIUM,
        "the slice hash was chosen on write hits at these ring sizes, the full send queue was not",
        why="ring and send queues hold 1400 packets, as the paper calculates, half of what two ways hold. A "
        "uniform hash gives some sets more than two of these lines, and these sets evict them. The artifact's "
        "own data show 2 % misses",
    )
    def misses_with_few_descriptors(self, runs):
        return number(100 - write_hits(runs[1500, 128]))

    @claim("ATC20-F6-3", WEAK, "calibrated: the replacement rules were fitted on this point of the artifact (39 %)")
    def hits_with_many_descriptors(self, runs):
        return number(write_hits(runs[1500, 4096]))

    @claim("ATC20-F6-4", WEAK, "arithmetic of ring sizes: rings of small packets all fit into two ways")
    def small_packets_are_alike(self, runs):
        return checks(
            {
                f"the hit rates of small packets are within {SAME.text} of their mean at {ring} descriptors": about_equal(
                    [write_hits(runs[size, ring]) for size in SMALL], SAME
                )
                for ring in self._rings(runs)
            }
        )

    @claim(
        "ATC20-F6-5", WEAK, "calibrated: the limit on sending was chosen because it gives the read hits of this point"
    )
    def packets_sent_from_memory(self, runs):
        return number(100 - read_hits(runs[1500, 4096]))

    @claim("ATC20-F7-1", WEAK, "calibrated: the time of one send queue was fitted on these four packet rates")
    def larger_packets_are_fewer_and_more_data(self, runs):
        packets = [_pps(runs[size, 4096]) for size in SIZES[3:]]
        rates = [link_gbps(_pps(runs[size, 4096]), size) for size in SIZES]
        return checks(
            {
                "from 512 B on, larger packets are forwarded at a lower packet rate": falling(packets),
                "throughput rises with the packet size": rising(rates, EFFECT),
            }
        )

    @claim(
        "ATC20-F7-2",
        WEAK,
        "calibrated: the time of one send queue was fitted on the packet rate with 1500 B",
        why="the artifact's 7.5 million packets of 1500 B per second are 91.4 Gb/s on the wire, more than the 90 of the text",
    )
    def what_one_core_forwards_at_most(self, runs):
        return number(max(link_gbps(_pps(runs[size, ring]), size) for size, ring in runs))


def _pps(run):
    return run.workload("l2fwd").throughput
