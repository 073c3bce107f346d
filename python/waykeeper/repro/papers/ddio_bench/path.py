"""ATC20 s3, s2, s8.1: into which ways a device's lines are written, from where they are read, and the cost of the path
through memory."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Series, checks, claim, lacks, number
from waykeeper.repro.bands import ABSOLUTE, EFFECT, many_times, most, nearly_all

from .common import NIC, forwarders, read_hits, write_hits

SIZES = {60: 1, 252: 4, 1024: 16, 1500: 24}
"""Packet size -> number of its lines."""


class Path(Figure):
    id = "ddio-bench/s3"
    title = "The path of a device's lines"
    assumes = [
        "the cores have the ways 0x0fc in cases that look for lines outside DDIO's ways",
        (
            "classic DMA is DDIO switched off; the model's descriptors stay in the caches, where classic DMA has 5 "
            "accesses to memory"
        ),
    ]

    def cases(self, quick):
        deep = {"packet_bytes": 1500, "ring": 4096, "offered_gbps": 20}
        for program in ("dpdk-t", "dpdk-nt"):
            yield Case(program, forwarders(1, deep, program=program, mask="0x0fc"))
        for warm in (False, True):
            nic = {"packet_bytes": 1500, "ring": 4096, "offered_gbps": 40, "warm_buffers": warm}
            yield Case(("warm", warm), forwarders(1, nic))
        for mask in ("0x600", "0x018"):
            overrides = {**NIC, "workload.water.molecules": 8000, "workload.water.mask": mask}
            yield Case(("water", mask), "ddio-fig3", overrides, sets="1/8")
        for flushed in (False, True):
            yield Case(("flush", flushed), _flushed(flushed))
        for size in SIZES:
            off = {"knobs": {"dca_off": ["nic0"]}}
            yield Case(("classic", size), forwarders(1, {"packet_bytes": size, "ring": 1024, "offered_gbps": 10}) | off)
        for off in (False, True):
            light = forwarders(1, {"packet_bytes": 1500, "ring": 1024, "offered_gbps": 1}, program="dpdk-t")
            yield Case(("light", off), light | {"knobs": {"dca_off": ["nic0"] if off else []}})

    def panels(self, runs):
        yield Panel(
            "memory accesses of a packet without DDIO",
            x="lines of a packet",
            y="accesses",
            series=[
                Series("ours", list(SIZES.values()), [_accesses(runs["classic", size]) for size in SIZES]),
                Series("2n + 5", list(SIZES.values()), [2 * lines + 5 for lines in SIZES.values()]),
            ],
        )

    @claim(
        "ATC20-S2-2",
        MEDIUM,
        "with large packets a rule of the model (memory is written and read once per line); the 5 decide one line's packet",
        why="the model keeps descriptors and completions in the caches with DDIO off, so a packet of few lines causes "
        "fewer memory accesses",
    )
    def classic_dma_is_written_to_memory_twice(self, runs):
        return checks(
            {
                f"a packet of n = {lines} lines causes 2n + 5 memory accesses, within {ABSOLUTE.text}": (
                    abs(_accesses(runs["classic", size]) / (2 * lines + 5) - 1) <= ABSOLUTE
                )
                for size, lines in SIZES.items()
            }
        )

    @claim("ATC20-S3-1", WEAK, "rules of the model: update in any way, allocate in the DDIO ways")
    def writes_update_anywhere_and_allocate_in_ddio_ways(self, runs):
        water = {mask: runs["water", mask].workload("water").llc_misses_per_s for mask in ("0x600", "0x018")}
        return checks(
            {
                (
                    "nearly all writes to a buffer of 6 MiB hit if cores hold its lines in their own ways; "
                    "DDIO's ways hold 4.5 MiB"
                ): nearly_all(write_hits(runs["dpdk-t"]) / 100),
                "that is not so if no core reads the buffer, which then only has DDIO's ways": not nearly_all(
                    write_hits(runs["dpdk-nt"]) / 100
                ),
                "a neighbour in DDIO's ways misses over twice as much as one in other ways": many_times(
                    water["0x600"], water["0x018"]
                ),
            }
        )

    @claim("ATC20-S3-2", WEAK, "rules of the model: a device read hits in any way and fills nothing")
    def reads_hit_anywhere_and_fill_nothing(self, runs):
        resident, flushed = (read_hits(runs["flush", one]) for one in (False, True))
        return checks(
            {
                "most device reads hit blocks that are in a core's ways": most(resident / 100),
                "after these blocks are evicted, repeated device reads do not bring them back": lacks(
                    flushed, resident
                ),
            }
        )

    @claim("ATC20-S3-3", WEAK, "follows from update in any way, and 6 MiB of written buffers fit into the LLC")
    def warm_buffers_are_a_larger_share(self, runs):
        cold, warm = (write_hits(runs["warm", one]) for one in (False, True))
        return checks(
            {
                f"the write hit rate is over {EFFECT.points} higher with warm buffers": warm - cold > EFFECT.percent,
                "nearly all writes hit with warm buffers": nearly_all(warm / 100),
            }
        )

    @claim("ATC20-S8.1-1", WEAK, "sum of constants: 24 lines at 6 ns more from memory; the published range is wide")
    def a_packet_through_memory(self, runs):
        on, off = (runs["light", one].workload("l2fwd").latency_mean_us for one in (False, True))
        return number(1000 * (off - on))


def _accesses(run):
    """Lines that memory read or wrote per packet."""
    traffic = run.system.memory_read_bytes_per_s + run.system.memory_write_bytes_per_s
    return traffic / 64 / run.workload("l2fwd").throughput


def _flushed(flushed):
    """A storage program writes the same 8 MiB repeatedly; with `flushed`, another program evicts them from the LLC at
    the start."""
    fio = {"name": "fio", "program": "fio", "cores": "0", "block": "128 KiB", "depth": 64, "write_share": 1.0}
    scan = {"name": "scan", "program": "x-mem", "cores": "1-8", "working_set": "16 MiB", "operation": "write"}
    return {
        "name": "flush",
        "duration_s": 0.06,
        "warmup_s": 0.04,
        "measure_s": 0.02,
        "time_factor": 1,
        "interval_s": 0.01,
        "storage": [{"name": "ssd"}],
        "workload": [fio | {"mask": "0x0fc"}, scan | {"stop_s": 0.03 if flushed else 0.001}],
    }
