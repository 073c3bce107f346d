"""Statements of IAT's text about packets, DDIO's rules and counters."""

from waykeeper.repro import WEAK, Case, Figure, checks, claim, number
from waykeeper.repro.bands import SAME, lowered, nearly_all, not_lower, same

WINDOWS = 8
"""Number of intervals of each length whose IPC is compared."""
STABLE = 0.03
"""IAT's THRESHOLD_STABLE (Table II): up to this change of a counter a workload is steady."""


class Text(Figure):
    id = "iat/text"
    title = "Packet rates, DDIO's rules and sampled counters"
    assumes = [
        "one slice of 18 is represented by 1/32 of all sets, selected by a hash as slices are",
        "what DDIO-off does inside the caches is not visible from outside; that no line stays there is",
        "the steady workload of s7 is l3fwd's core, which the operating system occasionally stalls for 60 us",
    ]

    def cases(self, quick):
        yield Case("rate", _packets(100, 60, 1, "dpdk-nt", 0.01))
        yield Case("off", _packets(100, 1514, 8, "dpdk-t", 0.02), {"knobs.dca_off": ["nic0"]})
        for name, share in (("device reads", 1.0), ("device writes", 0.0)):
            yield Case(name, _beside_drives(share))
        yield Case("no device", _beside_drives(None))
        yield Case("sampled", _packets(40, 1514, 1, "l3fwd", 0.02), sets="1/32")
        yield Case("all", _packets(40, 1514, 1, "l3fwd", 0.02), sets="exact")
        for window in range(WINDOWS):
            for length_s in (0.001, 0.2):
                scenario = _packets(5, 60, 1, "l3fwd", 0.01 + length_s * (1 + window))
                yield Case((length_s, window), {**scenario, "warmup_s": 0.005, "measure_s": length_s})

    @claim("ISCA21-S2B-1", WEAK, "arithmetic of 84 bytes at 100 Gb/s")
    def packet_rate(self, runs):
        run = runs["rate"]
        return number((run.workload("app").throughput + run.system.drops_per_s) / 1e6)

    @claim(
        "ISCA21-S2B-2", WEAK, "rule of the model: without DDIO each byte is written to memory and read from there once"
    )
    def memory_traffic_without_ddio(self, runs):
        return number((runs["off"].system.memory_read_bytes_per_s + runs["off"].system.memory_write_bytes_per_s) / 1e9)

    @claim("ISCA21-S2B-3", WEAK, "rule of the model: a device read that misses is served without allocation")
    def device_reads_do_not_allocate(self, runs):
        system = runs["device reads"].system
        kept = {
            name: runs[name].workload("neighbour").throughput for name in ("no device", "device reads", "device writes")
        }
        return checks(
            {
                "memory serves nearly all that the device reads": nearly_all(
                    system.memory_read_bytes_per_s / system.outbound_bytes_per_s
                ),
                f"device reads slow a neighbour in DDIO's ways by at most {SAME.text}": not_lower(
                    kept["device reads"], kept["no device"]
                ),
                f"device writes slow it by over {SAME.text}": lowered(kept["device writes"], kept["no device"]),
            }
        )

    @claim(
        "ISCA21-S2B-4",
        WEAK,
        "rule of the model: without DDIO device writes invalidate cached copies and enter memory; as S2B-2",
    )
    def without_ddio_nothing_stays(self, runs):
        system = runs["off"].system
        return checks(
            {
                "nearly all bytes that arrive are written to memory": nearly_all(
                    system.memory_write_bytes_per_s / system.inbound_bytes_per_s
                ),
                "and nearly all are read from there": nearly_all(
                    system.memory_read_bytes_per_s / system.inbound_bytes_per_s
                ),
            }
        )

    @claim(
        "ISCA21-S5-1",
        WEAK,
        "the model's hash spreads lines evenly by definition; it tests our own sampling of 1/32 of the sets",
    )
    def one_slice_counts_for_all(self, runs):
        hits = [runs[name].system.dca_write_hit_ratio for name in ("sampled", "all")]
        misses = [1 - hit for hit in hits]
        return checks(
            {
                f"hits within {SAME.text}": same(*hits),
                f"misses within {SAME.text}": same(*misses),
            }
        )

    @claim(
        "ISCA21-S7-1",
        WEAK,
        "arithmetic: the assumed stall of 60 us is 6 % of 1 ms, and its mean over 0.2 s hardly varies",
        why="the model has one source of short variation, a stall each 4 to 5 ms; the windows of a seed may all miss it",
        each_seed=True,
    )
    def short_intervals_fluctuate(self, runs):
        spread = {}
        for length_s in (0.001, 0.2):
            ipc = [runs[length_s, window].workload("app").ipc for window in range(WINDOWS)]
            spread[length_s] = (max(ipc) - min(ipc)) / (sum(ipc) / len(ipc))
        return checks(
            {
                "over intervals of 1 ms the IPC of a steady program varies by more than THRESHOLD_STABLE": spread[0.001]
                > STABLE,
                "over intervals of 0.2 s it does not": spread[0.2] < STABLE,
            }
        )


def _packets(gbps, size, cores, program, duration_s):
    """One program on a NIC; seconds are simulated ones."""
    return {
        "name": "iat-text",
        "time_factor": 1,
        "duration_s": duration_s,
        "warmup_s": 0.002,
        "measure_s": 0.8 * duration_s,
        "policies": ["none"],
        "nic": [{"name": "nic0", "gbps": gbps, "ring": 1024, "packet_bytes": size, "flows": 1024}],
        "workload": [{"name": "app", "program": program, "cores": f"0-{cores - 1}", "priority": "high"}],
    }


def _beside_drives(write_share):
    """X-Mem in DDIO's ways, beside drives with more data in flight than the LLC holds."""
    workload = [
        {
            "name": "neighbour",
            "program": "x-mem",
            "cores": "0",
            "working_set": "4 MiB",
            "pattern": "random",
            "mask": "0x600",
        },
    ]
    if write_share is not None:
        fio = {"program": "fio", "cores": "1", "block": "2m", "depth": 64, "write_share": write_share, "mask": "0x00c"}
        workload.append({"name": "fio", **fio})
    return {
        "name": "iat-text-drives",
        "time_factor": 1,
        "duration_s": 0.2,
        "warmup_s": 0.05,
        "measure_s": 0.1,
        "policies": ["none"],
        "storage": [{"name": "raid0"}],
        "workload": workload,
    }
