"""IAT Fig. 4: X-Mem in two ways of its own and in the two that devices write to."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Points, Series, claim, span

SETS = (4, 6, 8, 10, 12, 16)
MASKS = {"dedicated": "0x00c", "overlapping": "0x600"}


class Fig04(Figure):
    id = "iat/fig4"
    title = "X-Mem's loss when it overlaps DDIO's ways"
    assumes = [
        (
            "packets of 1.5 KB: the paper does not give the size, and with 64 B one core forwards too little data "
            "to fill two ways"
        ),
        "X-Mem's latency is its time per access, because each read depends on the one before",
    ]

    def cases(self, quick):
        for mib in (4, 8, 16) if quick else SETS:
            for where, mask in MASKS.items():
                yield Case((mib, where), scenario(mib, mask))

    def panels(self, runs):
        sets = sorted({mib for mib, _ in runs})
        yield Panel(
            "X-Mem's throughput",
            x="working set, MiB",
            y="GB/s",
            series=[Series(where, sets, [_rate(runs[mib, where]) / 1e9 for mib in sets]) for where in MASKS],
        )
        yield Panel(
            "loss by the overlap",
            x="working set, MiB",
            y="loss of throughput, %",
            series=[Series("ours", sets, _losses(runs))],
            published=[Points("worst, paper", [4], [26.0])],
        )

    @claim(
        "ISCA21-F4-1", MEDIUM, "number, but the packet size is our choice: with 64-byte packets the model shows no loss"
    )
    def throughput(self, runs):
        losses = _losses(runs)
        return span(min(losses), max(losses))

    @claim("ISCA21-F4-2", WEAK, "same finding as ISCA21-F4-1: the latency is computed as one over the throughput")
    def latency(self, runs):
        return span(min(_latencies(runs)), max(_latencies(runs)))

    @claim("ISCA21-ABS-1", WEAK, "same number as ISCA21-F4-2")
    def a_program_without_io_is_slowed(self, runs):
        return span(min(_latencies(runs)), max(_latencies(runs)))


def _rate(run):
    return run.workload("x-mem").throughput


def _losses(runs):
    sets = sorted({mib for mib, _ in runs})
    return [100 * (1 - _rate(runs[mib, "overlapping"]) / _rate(runs[mib, "dedicated"])) for mib in sets]


def _latencies(runs):
    return [100 * (1 / (1 - loss / 100) - 1) for loss in _losses(runs)]


def scenario(mib, mask):
    """s3.B: l3fwd in ways 0 and 1 on a virtual function of a 40-Gb/s port; seconds are simulated ones."""
    return {
        "name": "iat-fig4",
        "time_factor": 1,
        "duration_s": 0.3,
        "warmup_s": 0.1,
        "measure_s": 0.15,
        "policies": ["none"],
        "nic": [
            {"name": "nic0", "gbps": 40, "ring": 1024, "packet_bytes": 1514, "flows": 1000000, "flow_order": "random"}
        ],
        "workload": [
            {"name": "l3fwd", "program": "l3fwd", "cores": "0", "priority": "high", "mask": "0x003"},
            {
                "name": "x-mem",
                "program": "x-mem",
                "cores": "1",
                "working_set": f"{mib} MiB",
                "pattern": "random",
                "mask": mask,
            },
        ],
    }
