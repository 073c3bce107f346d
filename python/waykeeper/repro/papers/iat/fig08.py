"""IAT Fig. 8: a virtual switch at line rate while packets double in size."""

from waykeeper.repro import (
    MEDIUM,
    WEAK,
    Case,
    Figure,
    Panel,
    Points,
    Series,
    absent,
    checks,
    claim,
    lacks,
    number,
    rising,
    span,
)
from waykeeper.repro.bands import EFFECT, FEW, some

from .switching import aggregated, cycles_per_packet, ddio, memory, switch

SIZES = (64, 128, 256, 512, 1024, 1514)
QUICK = (64, 1024, 1514)
STEP_S = 6
"""Duration of each earlier size; the last one lasts longer."""
LAST_S = 14
MISS_LOW = 1e6
"""IAT's THRESHOLD_MISS_LOW, 1/s (Table II)."""
BOTH = ("baseline", "iat")


class Fig08(Figure):
    id = "iat/fig8"
    title = "Leaky DMA of a virtual switch over the packet size"
    assumes = [
        "each core of the switch polls one NIC, and receives into and sends from one mempool",
        "a case begins two sizes earlier and is measured after 10 s at its own size",
    ]

    def cases(self, quick):
        for size in QUICK if quick else SIZES:
            yield Case(size, scenario(size), policies=BOTH)

    def panels(self, runs):
        sizes = runs.keys()
        for index, name in ((0, "DDIO hits"), (1, "DDIO misses")):
            values = {policy: [ddio(runs[size].policy(policy))[index] / 1e6 for size in sizes] for policy in BOTH}
            yield Panel(
                name,
                x="packet, B",
                y="lines, M/s",
                series=[Series(policy, sizes, ys) for policy, ys in values.items()],
                log_x=True,
            )
        values = {policy: [memory(runs[size].policy(policy)) / 1e9 for size in sizes] for policy in BOTH}
        yield Panel(
            "memory bandwidth",
            x="packet, B",
            y="GB/s",
            series=[Series(policy, sizes, ys) for policy, ys in values.items()],
            log_x=True,
        )
        gains = [_gain(runs[size]) for size in sizes]
        yield Panel(
            "the switch's IPC",
            x="packet, B",
            y="gain of IAT over baseline, %",
            series=[Series("ours", sizes, gains)],
            published=[Points("large packets, paper", [1514], [5])],
            log_x=True,
        )

    @claim(
        "ISCA21-F8-1",
        MEDIUM,
        "the shared mempool was added for misses at 1.5 KB; the few misses at 64 B and the growth are free",
    )
    def misses_grow_with_the_packet(self, runs):
        misses = [ddio(runs[size].policy("baseline"))[1] for size in runs.keys()]
        return checks(
            {
                "with small packets misses stay below IAT's threshold (1 million/s)": misses[0] < MISS_LOW,
                "misses grow with the packet size": rising(misses, slack=EFFECT),
                "with large packets misses are above the threshold": misses[-1] > MISS_LOW,
            }
        )

    @claim("ISCA21-F8-2", MEDIUM, "ordering of two policies; the model could show the reverse")
    def iat_hits_more_and_misses_less(self, runs):
        if lacks(_leak(runs), MISS_LOW):
            return _no_leak(runs)
        found = {}
        for size in (1024, 1514):
            theirs, ours = (ddio(runs[size].policy(policy)) for policy in BOTH)
            found[f"more hits at {size} B"] = ours[0] > theirs[0]
            found[f"fewer misses at {size} B"] = ours[1] < theirs[1]
        return checks(found)

    @claim(
        "ISCA21-F8-3",
        MEDIUM,
        "number, but the shared mempool that makes packets leak was added for this figure",
        why="in ours most memory traffic is evicted packets and their copies, and IAT gives the switch four ways "
        "besides DDIO's. In the paper a larger part of the traffic is of a kind that more ways do not reduce",
    )
    def memory_bandwidth(self, runs):
        if lacks(_leak(runs), MISS_LOW):
            return _no_leak(runs)
        large = [size for size in runs.keys() if ddio(runs[size].policy("baseline"))[1] > MISS_LOW]
        cuts = [100 * (1 - memory(runs[size].policy("iat")) / memory(runs[size].policy("baseline"))) for size in large]
        return span(0.0, max(cuts, default=None))

    @claim(
        "ISCA21-F8-4",
        MEDIUM,
        "number, but the shared mempool that makes packets leak was added for this figure",
        why="in ours the state CoreDemand of IAT gives the switch two more ways besides DDIO's",
    )
    def ipc_of_the_switch(self, runs):
        if lacks(_leak(runs), MISS_LOW):
            return _no_leak(runs)
        cycles = [cycles_per_packet(runs[1514].policy(policy)) for policy in BOTH]
        return number(_gain(runs[1514]), shape=_gain(runs[1514]) > 0 and cycles[1] < cycles[0])

    @claim(
        "ISCA21-F8-5",
        WEAK,
        "IAT's rules: misses above its threshold (F8-1) lead to I/O Demand, which adds one way per interval",
    )
    def a_way_an_interval(self, runs):
        run = runs[1514].policy("iat")
        grown = [decision["at_s"] for decision in run.decisions if decision["action"] == "ddio-grow"]
        return checks(
            {
                "IAT enters the state I/O Demand": any(decision["state"] == "IODemand" for decision in run.decisions),
                "DDIO gains more than one way, one per interval": len(grown) > 1 and len(set(grown)) == len(grown),
                f"over {FEW.text} of the baseline's memory traffic remains": some(
                    memory(run) / memory(runs[1514].policy("baseline"))
                ),
            }
        )


def _leak(runs):
    """DDIO misses per second of the largest packets without IAT."""
    return ddio(runs[1514].policy("baseline"))[1]


def _no_leak(runs):
    return absent(f"without IAT DDIO misses {_leak(runs) / 1e6:.2g} million lines/s, the paper has over 1 million")


def _gain(run):
    theirs, ours = (switch(run.policy(policy), "ipc") for policy in BOTH)
    return 100 * (ours / theirs - 1)


def scenario(size):
    """Line rate of a single flow on both NICs."""
    until = SIZES[: SIZES.index(size) + 1][-3:]
    phases = [{"at_s": STEP_S * step, "packet_bytes": until[step]} for step in range(1, len(until))]
    nic = {"packet_bytes": until[0], "flows": 1, "phase": phases}
    return aggregated(nic, duration_s=STEP_S * (len(until) - 1) + LAST_S, measure_s=4)
