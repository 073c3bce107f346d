"""ATC20, statements of the text: time budgets, memory footprints and geometry, checked with the chip's own tables."""

import waykeeper
from waykeeper.repro import MEDIUM, WEAK, Case, Figure, absent, checks, claim, lacks, number, span
from waykeeper.repro.bands import EFFECT, SAME, lower, not_higher, not_lower

from .common import NIC, forwarders, reduction, write_hits

SKYLAKE, HASWELL = "gold-6140", "e5-2667v3"
LINE = 64
MIB = 1 << 20
CYCLES_PER_CALL = 7.0
"""s5.2: ten calls of the random number generator take about 70 cycles."""
SEND_QUEUE = 256 + 1024
"""Packets in a send ring and in the software queue before it (s4: up to 1024)."""


def call_ns() -> float:
    """Time of one call of the random number generator, ns."""
    return CYCLES_PER_CALL / waykeeper.chip(SKYLAKE)["ghz"]


LLC_SHARE = 26.6
"""Part of the LLC that the receive buffers need, % (ATC20-S3.1-5)."""
ROUNDING = 0.5
"""The paper's sizes are rounded to 0.1 MiB, so that the part is known to half a point (ATC20-S3.1-5)."""


def _slice_mib(chip):
    llc = waykeeper.chip(chip)["llc"]
    return llc["sets"] * llc["ways"] * LINE / MIB


def _ddio_mib():
    llc = waykeeper.chip(SKYLAKE)["llc"]
    return llc["slices"] * llc["sets"] * LINE * int(llc["dca_ways"], 16).bit_count() / MIB


class Text(Figure):
    id = "ddio-bench/text"
    title = "Budgets, footprints and geometry"
    assumes = ["a 64-B frame has 60 B here, because the checksum is not written to the host"]

    def cases(self, quick):
        for off in (False, True):
            small = forwarders(1, {"packet_bytes": 60, "ring": 1024}) | {"knobs": {"dca_off": ["nic0"] if off else []}}
            yield Case(("small", off), small)
        yield Case("few", "ddio-fig6", {**NIC, "nic.nic0.packet_bytes": 1500, "nic.nic0.ring": 128})
        for policy in ("none", "dmadynamic", "ddio-ways"):
            full = {"policy": {"ddio-ways": {"ways": 8}}} if policy == "ddio-ways" else {}
            yield Case(policy, "ddio-fig2", full, policies=[policy])

    def _wire_ns(self, runs):
        """Time between two small packets at 100 Gb/s, ns."""
        run = runs["small", False]
        return 1e9 / (run.workload("l2fwd").throughput + run.system.drops_per_s)

    @claim("ATC20-S2-1", WEAK, "arithmetic of the line rate, and a constant of the chip")
    def budget_and_memory(self, runs):
        return span(self._wire_ns(runs), waykeeper.chip(SKYLAKE)["dependent"]["memory_ns"])

    @claim("ATC20-S3.1-1", WEAK, "arithmetic of the line rate")
    def packets_that_a_stall_buffers(self, runs):
        return number(self._wire_ns(runs))

    @claim(
        "ATC20-S3.1-2",
        WEAK,
        "sum of a packet's constants: base work and two lines from memory (completion, header), where the claim has one",
    )
    def cores_for_400_gbps(self, runs):
        # One core that finds completion and header in memory, against four times the packets of 100 Gb/s.
        offered = 4 * 1e9 / self._wire_ns(runs)
        return number(offered / runs["small", True].workload("l2fwd").throughput)

    @claim("ATC20-S3.1-5", WEAK, "arithmetic of ring sizes")
    def receive_buffers(self, runs):
        chip = waykeeper.chip(SKYLAKE)
        mib = chip["cores"] * 256 * 1500 / MIB
        share = mib / (chip["llc"]["slices"] * _slice_mib(SKYLAKE))
        return number(
            mib,
            holds={
                f"this is {LLC_SHARE} % of the LLC": abs(100 * share - LLC_SHARE) < ROUNDING,
                "and more than DDIO's ways": mib > _ddio_mib(),
            },
        )

    @claim("ATC20-S3.1-6", WEAK, "restates the chips' tables")
    def slices_shrank(self, runs):
        return span(_slice_mib(SKYLAKE), _slice_mib(HASWELL))

    @claim("ATC20-S3.1-7", MEDIUM, "ordering of two policies; the model could show that smaller bursts help")
    def reacting_does_not_help(self, runs):
        none, reactive, ways = (runs[name].workload("l2fwd") for name in ("none", "dmadynamic", "ddio-ways"))
        gain = reduction(none.latency_p99_us, ways.latency_p99_us)
        if lacks(gain):
            return absent(f"more DDIO ways reduce p99 by {gain:.2g} %: there is no contention to react to")
        return checks(
            {
                f"smaller bursts reduce p99 by at most {SAME.text}": not_lower(
                    reactive.latency_p99_us, none.latency_p99_us
                ),
                f"smaller bursts raise throughput by at most {SAME.text}": not_higher(
                    reactive.throughput, none.throughput
                ),
                f"more DDIO ways reduce p99 by over {EFFECT.text}": lower(ways.latency_p99_us, none.latency_p99_us),
            }
        )

    @claim("ATC20-S4.1-1", WEAK, "restates the chip's table")
    def share_of_ddio(self, runs):
        llc = waykeeper.chip(SKYLAKE)["llc"]
        return number(100 * int(llc["dca_ways"], 16).bit_count() / llc["ways"])

    @claim(
        "ATC20-S5.1-1",
        WEAK,
        "arithmetic of ring sizes; that device writes miss is the finding of ATC20-F6-2",
        why="see ATC20-F6-2: a uniform slice hash gives few sets more lines of so small a footprint than two ways hold",
    )
    def footprint_with_few_descriptors(self, runs):
        injected, all_of_it = 128 * 1500 / 1024, (128 + SEND_QUEUE) * 1500 / 1024
        return span(
            injected,
            all_of_it,
            holds={
                "DDIO's ways could hold all of it": all_of_it / 1024 < _ddio_mib(),
                f"over {EFFECT.text} of device writes miss even so": 100 - write_hits(runs["few"]) > EFFECT.percent,
            },
        )
