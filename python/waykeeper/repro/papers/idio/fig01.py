"""IDIO Fig. 1: effect of an LLC antagonist on the bandwidth of network functions, and of network functions on mcf."""

from waykeeper.repro import MEDIUM, Case, Figure, Panel, Points, Series, absent, checks, claim, falling, lacks, number
from waykeeper.repro.bands import EFFECT

MIB = [0, 8, 32]
MCF_GBPS = [5, 20, 40, 80]
FUNCTIONS = {
    "L3fwd:1518B": {"program": "fastclick", "cores": "0-1"},
    "L3fwd:64B": {"program": "l3fwd", "cores": "0-1"},
    "iperf": {"program": "iperf", "cores": "0"},
}
WINDOWED = "iperf"
"""The function whose sender waits for the receiver: a search for loss would find the line rate."""
LOST = 7
"""Published loss of L3fwd:64B's bandwidth to the antagonist, % (CAL20-F1-2)."""
BYTES = {"L3fwd:1518B": 1518, "L3fwd:64B": 64, "iperf": 1518}
LINE_GBPS = {"L3fwd:1518B": 80, "L3fwd:64B": 40, "iperf": 80}
"""Line rates: above what each function forwards, and so low that the search's steps, 0.5 % of it, are at most 1 % of that, less than an
effect."""


class Fig01(Figure):
    id = "idio/fig1"
    title = "Network functions beside an LLC antagonist"
    assumes = [
        (
            "L3fwd:1518B, which reads whole payloads, is the program fastclick; L3fwd:64B is l3fwd with its "
            "million flows"
        ),
        (
            "the maximum sustainable bandwidth of L3fwd is the highest without loss; iperf's sender waits for its window and "
            "loses nothing, so its bandwidth is what it receives at line rate. One NIC of 80 Gb/s, with 64-byte packets of "
            "40 Gb/s, replaces the paper's eight 10 GbE ports"
        ),
        (
            "the antagonist is X-Mem, which writes a buffer on the five remaining cores; iperf has one connection with "
            "Linux's largest default window, and its sender has no congestion control"
        ),
        "two memory channels, as in the paper; each moves what one of DDR4-2666 does (DDR4-2400 in the paper)",
    ]

    def cases(self, quick):
        for name in FUNCTIONS:
            for mib in (0, 32) if quick else MIB:
                if name != WINDOWED:
                    yield Case((name, mib), _scenario(name, mib), search="zero-loss")
                yield Case(("misses", name, mib), _scenario(name, mib))
        for gbps in MCF_GBPS:
            yield Case(("mcf", gbps), _mcf(gbps))
        yield Case(("mcf", 0), _mcf(0.1))

    def panels(self, runs):
        sizes = sorted({key[1] for key in runs if key[0] in FUNCTIONS})
        series = [
            Series(name, sizes, [self._bandwidth(runs, name, mib) / self._bandwidth(runs, name, 0) for mib in sizes])
            for name in FUNCTIONS
        ]
        published = [Points("L3fwd:64B, paper", [32], [0.93]), Points("iperf, paper", [32], [0.52])]
        yield Panel(
            "bandwidth",
            x="antagonist's buffer per core, MiB",
            y="relative to no antagonist",
            series=series,
            published=published,
        )
        rates = [0, *MCF_GBPS]
        yield Panel(
            "mcf beside L3fwd:1518B",
            x="offered load, Gb/s",
            y="IPC",
            series=[Series("mcf", rates, [runs["mcf", gbps].workload("mcf").ipc for gbps in rates])],
        )

    def _bandwidth(self, runs, name, mib):
        """Of a function beside an antagonist, in a unit of its own."""
        if name == WINDOWED:
            return runs["misses", name, mib].workload("nf").throughput
        return runs[name, mib].msl_gbps

    def _loss(self, runs, name):
        """Loss of bandwidth to the largest antagonist, %."""
        largest = max(key[1] for key in runs if key[0] in FUNCTIONS)
        return 100 * (1 - self._bandwidth(runs, name, largest) / self._bandwidth(runs, name, 0))

    @claim(
        "CAL20-F1-1",
        MEDIUM,
        "a loss of at most 5 % passes; nothing was fitted on it, and 80 Gb/s of line rate may hide a part",
        why="our program forwards 80 Gb/s near its limit; the paper's functions forward 10 Gb/s per port, below theirs",
    )
    def large_packets_do_not_mind(self, runs):
        other = self._loss(runs, "L3fwd:64B")
        if lacks(other, LOST):
            return absent(f"the antagonist costs L3fwd:64B {other:.2g} % of its bandwidth, the paper has {LOST} %")
        return number(self._loss(runs, "L3fwd:1518B"))

    @claim(
        "CAL20-F1-2",
        MEDIUM,
        "nothing was fitted on it, but antagonist and table size are assumed",
        why="in ours the flow table has 8 MiB and is most of what the antagonist evicts; the paper does not give "
        "its size",
    )
    def small_packets_mind_a_little(self, runs):
        return number(self._loss(runs, "L3fwd:64B"))

    @claim(
        "CAL20-F1-3",
        MEDIUM,
        "nothing was fitted on it; softirq time, window and antagonist are assumed, and with a window of 1 MiB the loss "
        "is 5 %",
    )
    def iperf_minds_much(self, runs):
        return number(self._loss(runs, WINDOWED))

    @claim("CAL20-F1-4", MEDIUM, "a single direction, without a least size of the fall; nothing was fitted on it")
    def mcf_slows_as_the_load_grows(self, runs):
        curve = [runs["mcf", gbps].workload("mcf").ipc for gbps in (0, *MCF_GBPS)]
        return checks({"mcf's IPC falls with the offered load": falling(curve, EFFECT)})

    @claim(
        "CAL20-F1-5",
        MEDIUM,
        "ordering of three programs by over 2 points; the model could show the reverse",
        why="the antagonist costs our L3fwd:64B too little: the paper does not give the size of its table",
    )
    def ranking(self, runs):
        loss = {name: self._loss(runs, name) for name in FUNCTIONS}
        return checks(
            {
                f"iperf loses over {EFFECT.points} more than L3fwd:64B": loss["iperf"] - loss["L3fwd:64B"]
                > EFFECT.percent,
                f"L3fwd:64B loses over {EFFECT.points} more than L3fwd:1518B": loss["L3fwd:64B"] - loss["L3fwd:1518B"]
                > EFFECT.percent,
            }
        )


def _base(packet_bytes, line_gbps, gbps=None):
    nic = {
        "name": "nic0",
        "gbps": line_gbps,
        "packet_bytes": packet_bytes,
        "ring": 1024,
        "flows": 4096,
        "flow_order": "random",
    }
    if gbps is not None:
        nic["offered_gbps"] = gbps
    return {
        "name": "idio-fig1",
        "chip": "gold-6134",
        "memory_channels": 2,
        "policies": ["none"],
        "duration_s": 0.05,
        "warmup_s": 0.02,
        "measure_s": 0.03,
        "time_factor": 1,
        "interval_s": 0.01,
        "nic": [nic],
    }


def _scenario(name, mib):
    workloads = [{"name": "nf", **FUNCTIONS[name]}]
    if mib:
        antagonist = {"program": "x-mem", "cores": "3-7", "operation": "write", "working_set": f"{mib} MiB"}
        workloads.append({"name": "antagonist", **antagonist})
    return {**_base(BYTES[name], LINE_GBPS[name]), "workload": workloads}


def _mcf(gbps):
    workloads = [
        {"name": "nf", **FUNCTIONS["L3fwd:1518B"]},
        {"name": "mcf", "program": "spec", "benchmark": "mcf", "cores": "2"},
    ]
    return {**_base(1518, LINE_GBPS["L3fwd:1518B"], gbps), "workload": workloads}
