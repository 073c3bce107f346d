"""A4 Fig. 14: parts of a packet's time, storage latency and throughput, and memory traffic on the HPW-heavy mix."""

from waykeeper.repro import (
    MEDIUM,
    STRONG,
    WEAK,
    Case,
    Figure,
    Panel,
    Points,
    Series,
    checks,
    claim,
    number,
)
from waykeeper.repro.bands import ALIKE, EFFECT, alike, higher

from .common import change, memory
from .mixes import POLICIES

MIX = "HPW-heavy"
PARTS = {"queueing": "queueing_mean_us", "pointer access": "pointer_mean_us", "processing": "processing_mean_us"}
NARROW = (
    "with the short wait of Fig. 14a's FastClick none of our rings fills under any scheme, so few packets leak and little can be "
    "gained; in the paper all three parts fall by about as much"
)
PARTS_MIX = "HPW-heavy, FastClick that notes times"
PARTS_CLICK = {
    "nic.nic0.ring": 2048,
    "workload.fastclick.delay_ns": 30,
    "workload.fastclick.clock_cycles": 0,
    "workload.fastclick.burst_ns": 760,
}
"""The FastClick of Fig. 14a (artifact, app/configs/smartllc_lat.click): ring and wait of another configuration, the wait by the TSC,
and the NIC's clock read at every poll, 700 ns on top of 60 (assumption: one read over PCIe, as the NIC's own reads)."""


class Fig14(Figure):
    id = "a4/fig14"
    title = "I/O latency, throughput and memory traffic under the schemes"
    assumes = [
        "as in Fig. 13a",
        "pointer access: completion, descriptor and packet metadata; processing: instructions and the packet's lines",
        "Fig. 14a has the artifact's other FastClick: ring of 2048, a wait of 30 ns, the NIC's clock read at every poll",
    ]

    def cases(self, quick):
        yield Case(MIX, "a4-hpw-heavy", policies=POLICIES)
        yield Case(PARTS_MIX, "a4-hpw-heavy", PARTS_CLICK, policies=("default", "a4-d"))

    def panels(self, runs):
        parts = [
            Series(
                policy,
                list(PARTS),
                [
                    _fastclick(runs, policy, PARTS_MIX)[key] / _fastclick(runs, "default", PARTS_MIX)[key]
                    for key in PARTS.values()
                ],
            )
            for policy in ("default", "a4-d")
        ]
        published = [Points("A4-d, paper", list(PARTS), [0.85, 0.80, 0.77])]
        yield Panel("FastClick's time per packet", x="", y="relative to Default", series=parts, published=published)
        names = list(POLICIES)
        yield Panel(
            "FFSB-H",
            x="",
            y="relative to Default",
            series=[
                Series(
                    "latency",
                    names,
                    [
                        _storage(runs, name).latency_mean_us / _storage(runs, "default").latency_mean_us
                        for name in names
                    ],
                ),
                Series(
                    "throughput",
                    names,
                    [_storage(runs, name).throughput / _storage(runs, "default").throughput for name in names],
                ),
            ],
        )
        yield Panel(
            "memory bandwidth",
            x="",
            y="GB/s",
            series=[
                Series("read", names, [_system(runs, name).memory_read_bytes_per_s / 1e9 for name in names]),
                Series("write", names, [_system(runs, name).memory_write_bytes_per_s / 1e9 for name in names]),
            ],
        )

    def _part(self, runs, key):
        return change(_fastclick(runs, "a4-d", PARTS_MIX)[key], _fastclick(runs, "default", PARTS_MIX)[key])

    @claim(
        "ISCA25-F14-1",
        MEDIUM,
        "FastClick's states under Default and a4-d were fitted on hit rates; the time in the ring was not",
        why=NARROW,
    )
    def less_queueing(self, runs):
        return number(self._part(runs, "queueing_mean_us"))

    @claim(
        "ISCA25-F14-2",
        MEDIUM,
        "hit rates at both ends and the cost of each level were fitted; the share of this part was not",
        why=NARROW,
    )
    def faster_pointer_access(self, runs):
        return number(self._part(runs, "pointer_mean_us"))

    @claim(
        "ISCA25-F14-3",
        MEDIUM,
        "hit rates at both ends and the fixed cost per packet were fitted; the share of this part, the largest, was not",
        why=NARROW,
    )
    def faster_processing(self, runs):
        parts = {name: self._part(runs, key) for name, key in PARTS.items()}
        return number(
            parts["processing"],
            holds={"processing falls most of the three parts": parts["processing"] == min(parts.values())},
        )

    @claim("ISCA25-F14-4", WEAK, "the drives limit FFSB-H at a fixed queue depth; no cache effect can move it by 10 %")
    def storage_is_unchanged(self, runs):
        usual = _storage(runs, "default")
        found = {}
        for name in POLICIES[1:]:
            storage = _storage(runs, name)
            found[f"storage latency under {name} changes by at most {ALIKE.text}"] = alike(
                storage.latency_mean_us, usual.latency_mean_us
            )
            found[f"storage throughput under {name} changes by at most {ALIKE.text}"] = alike(
                storage.throughput, usual.throughput
            )
        return checks(found)

    @claim(
        "ISCA25-F14-5",
        WEAK,
        "the drives limit FFSB-H at a fixed queue depth; the mean of reads and writes represents the reads",
        why="the drives limit storage, so its latency hardly depends on DCA",
    )
    def storage_latency_is_larger_with_dca(self, runs):
        return checks(
            {
                f"storage latency under Default is over {EFFECT.text} larger than under a4-c": higher(
                    _storage(runs, "default").latency_mean_us, _storage(runs, "a4-c").latency_mean_us
                )
            }
        )

    @claim(
        "ISCA25-F14-6",
        STRONG,
        "a number whose sign and size the model could miss; no memory traffic of the mixes was fitted",
        why="storage data are written to memory in both cases; FastClick's packets no longer leak under a4-c, so "
        "it causes fewer memory writes",
    )
    def dca_off_costs_memory_writes(self, runs):
        return number(
            change(_system(runs, "a4-c").memory_write_bytes_per_s, _system(runs, "a4-b").memory_write_bytes_per_s)
        )

    @claim(
        "ISCA25-F14-7",
        MEDIUM,
        "the traffic was not fitted; the hit rates under Default and a4-d, which it follows, were (Fig. 13b)",
        why="FastClick leaks less under a4-d, but with its queues drained it also receives and sends more packets",
    )
    def total_memory_bandwidth_falls(self, runs):
        return number(change(_memory(runs, "a4-d"), _memory(runs, "default")))

    @claim(
        "ISCA25-F14-8",
        MEDIUM,
        "the traffic was not fitted; the hit rates under Default and a4-d, which it follows, were (Fig. 13b)",
        why="in the model most reads are those of streaming SPEC profiles, which no scheme changes",
    )
    def memory_reads_fall(self, runs):
        return number(
            change(_system(runs, "a4-d").memory_read_bytes_per_s, _system(runs, "default").memory_read_bytes_per_s)
        )

    @claim(
        "ISCA25-F14-9",
        MEDIUM,
        "the drives and the line rate fix most of the sum; only packets that FastClick drops can move it",
        why="under Default FastClick drops 6 % of the packets, under a4-d 2 %, which is half of the paper's gain",
    )
    def io_throughput_rises(self, runs):
        return number(change(_io(runs, "a4-d"), _io(runs, "default")))

    @claim(
        "ISCA25-F14-10", WEAK, "the band for no change, 5 %, is nearly as wide as the paper's effect of all of A4, 6 %"
    )
    def trash_ways_only_move_writebacks(self, runs):
        return number(change(_memory(runs, "a4-d"), _memory(runs, "a4-c")))

    @claim(
        "ISCA25-F14-11",
        MEDIUM,
        "two orderings of policies; the model could show the reverse",
        why="rings that stay full leak more data than the lower throughput saves",
    )
    def isolate_moves_less(self, runs):
        return checks(
            {
                "memory bandwidth under Isolate is below Default's": _memory(runs, "isolate")
                < _memory(runs, "default"),
                "I/O throughput under Isolate is below Default's": _io(runs, "isolate") < _io(runs, "default"),
            }
        )

    @claim(
        "ISCA25-F14-12",
        WEAK,
        "arithmetic of queues: the line rate caps the throughput, and nothing caps the fall of the wait",
    )
    def latency_gains_more_than_throughput(self, runs):
        latency = _fastclick(runs, "default").latency_mean_us / _fastclick(runs, "a4-d").latency_mean_us
        throughput = _fastclick(runs, "a4-d").throughput / _fastclick(runs, "default").throughput
        return checks({"latency improves by a larger factor than throughput": latency > throughput})


def _fastclick(runs, policy, mix=MIX):
    return runs[mix].policy(policy).workload("fastclick")


def _storage(runs, policy):
    return runs[MIX].policy(policy).workload("ffsb-heavy")


def _system(runs, policy):
    return runs[MIX].policy(policy).system


def _memory(runs, policy):
    return memory(runs[MIX].policy(policy))


def _io(runs, policy):
    system = _system(runs, policy)
    return system.inbound_bytes_per_s + system.outbound_bytes_per_s
