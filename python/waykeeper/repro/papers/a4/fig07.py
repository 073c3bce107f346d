"""A4 Fig. 7: n+2 ways that overlap the inclusive ways, compared with n ways beside them."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Points, Series, checks, claim
from waykeeper.repro.bands import EFFECT, lower, not_higher

from .common import memory

WINDOWS = {
    "2-Overlap": "0x003",
    "2-Exclude": "0x00c",
    "4-Overlap": "0x00f",
    "4-Exclude": "0x03c",
    "6-Overlap": "0x03f",
    "6-Exclude": "0x0fc",
    "8-Overlap": "0x0ff",
}
AT_DCA = {"2 at DCA": "0x180", "4 at DCA": "0x780"}
PAIRS = [("4-Overlap", "2-Exclude"), ("6-Overlap", "4-Exclude"), ("8-Overlap", "6-Exclude")]


class Fig07(Figure):
    id = "a4/fig7"
    title = "Overlapping or excluding the inclusive ways"
    assumes = [
        (
            "100 ns of work per packet, as in the artifact; the model's queues are short with it, and latencies "
            "differ little"
        ),
        "masks at the DCA end: 2 ways beside the DCA ways, and 4 ways including them",
    ]

    def cases(self, quick):
        for name, mask in {**WINDOWS, **AT_DCA}.items():
            yield Case(name, "a4-fig7", {"workload.dpdk-t.mask": mask})

    def panels(self, runs):
        names = list(WINDOWS)
        yield Panel(
            "memory bandwidth",
            x="DPDK-T's ways",
            y="GB/s",
            series=[Series("ours", names, [memory(runs[name]) for name in names])],
            published=[Points("paper", names, [12.1, 8.2, 4.6, 4.2, 1.33, 1.26, 0.65])],
        )
        yield Panel(
            "DPDK-T's latency",
            x="DPDK-T's ways",
            y="us",
            series=[
                Series("mean", names, [_latency(runs[name]) for name in names]),
                Series("p99", names, [_tail(runs[name]) for name in names]),
            ],
            published=[Points("mean, paper", names, [297, 167, 87, 34, 15, 15, 15])],
        )

    @claim("ISCA25-F7-1", MEDIUM, "an order of three pairs of masks; the migration rules could show the reverse")
    def overlapping_is_better(self, runs):
        found = {}
        for more, fewer in PAIRS:
            found[f"{more} needs no more memory bandwidth than {fewer}"] = not_higher(
                memory(runs[more]), memory(runs[fewer])
            )
            found[f"{more} is no slower than {fewer}"] = not_higher(
                _latency(runs[more]), _latency(runs[fewer])
            ) and not_higher(_tail(runs[more]), _tail(runs[fewer]))
        first, second = (runs[name] for name in PAIRS[0])
        found[f"4-Overlap needs over {EFFECT.text} less memory bandwidth than 2-Exclude"] = lower(
            memory(first), memory(second)
        )
        found["and has a lower latency"] = _latency(first) < _latency(second)
        return checks(found)

    @claim(
        "ISCA25-F7-4",
        WEAK,
        "one pair of masks, of which the larger contains the smaller: less traffic and latency are nearly certain",
        why="the model's queues are short with these masks, so their latencies differ little",
    )
    def the_same_at_the_dca_end(self, runs):
        more, fewer = (runs[name] for name in ("4 at DCA", "2 at DCA"))
        return checks(
            {
                f"four ways that include the DCA ways need over {EFFECT.text} less memory bandwidth than two beside them": (
                    lower(memory(more), memory(fewer))
                ),
                "and have a lower latency": _latency(more) < _latency(fewer),
                "and no higher p99": not_higher(_tail(more), _tail(fewer)),
            }
        )


def _latency(run):
    return run.workload("dpdk-t").latency_mean_us


def _tail(run):
    return run.workload("dpdk-t").latency_p99_us
