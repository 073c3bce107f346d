"""ATC20 Fig. 14: two forwarders on a 100G NIC each; what becomes of the first one's tail in five set-ups."""

from waykeeper.repro import Case, Figure, Panel, Points, Series, checks, claim, number

from .common import change, reduction

SETUPS = {
    "i": {"nic.nic1.offered_gbps": 0},
    "ii": {},
    "iii": {"knobs.dca_ways": "0x780"},
    "iv": {"nic.nic1.remote": True},
    "v": {"knobs.dca_off": ["nic1"]},
}
LARGER = (
    "right in order, larger in size: ours goes from a short queue to a full one (0.06 to 0.8 ms in the server, on top of "
    "0.48 ms in the generator), theirs from one that is half full already (Table 2: p99 of 1056 us)"
)


class Fig14(Figure):
    id = "ddio-bench/fig14"
    title = "200 Gb/s through one socket: the first NIC's tail latency"
    assumes = [
        "the campus trace is three packet sizes with CacheDirector's shares, 981 B on average",
        "480 us of every latency are the generator's own queue: Table 2's medians at line rate are 499 and 501 us",
        "7400 bytes of the NIC's reads in flight, between what line rate in Table 2 needs and what the artifact's two cores reach: "
        "within these bounds the figure is knife-edge, at 7500 there is no contention",
        "no MBA; ways 0x0f0 for the first forwarder, 0x00c for the second",
    ]

    def cases(self, quick):
        for name, overrides in SETUPS.items():
            yield Case(name, "ddio-fig14", overrides)

    def panels(self, runs):
        base = _p99(runs["i"])
        yield Panel(
            "p99 of the high-priority forwarder",
            x="set-up",
            y="relative to (i)",
            series=[Series("ours", list(SETUPS), [_p99(runs[name]) / base for name in SETUPS])],
            published=[Points("paper", ["i", "ii", "iv"], [1, 1.3, 1])],
        )

    @claim("ATC20-F14-1", why=LARGER)
    def sharing_two_ways_hurts(self, runs):
        return number(_more(runs, "ii"))

    @claim("ATC20-F14-2")
    def a_remote_neighbour_does_not(self, runs):
        return number(_more(runs, "iv"))

    @claim("ATC20-F14-3")
    def four_ways_are_as_good(self, runs):
        return checks(
            {
                "four ways are within 5 % of the remote neighbour": abs(change(_p99(runs["iv"]), _p99(runs["iii"])))
                <= 5,
                "both are better than two ways": max(_p99(runs["iii"]), _p99(runs["iv"])) < 0.95 * _p99(runs["ii"]),
            }
        )

    @claim(
        "ATC20-F14-4",
        why="a port with DDIO off writes neither packets nor completions to the LLC here, as a remote one does; that "
        "completions still go there is the paper's guess",
    )
    def ddio_off_is_slightly_worse_than_remote(self, runs):
        remote, off = _p99(runs["iv"]), _p99(runs["v"])
        return checks(
            {
                "DDIO off is worse than the remote neighbour": off > remote,
                "by less than two shared ways are": off < _p99(runs["ii"]),
            }
        )

    @claim("ATC20-F14-5")
    def what_bypass_and_tuning_bring(self, runs):
        return number(self._best(runs))

    @claim("ATC20-ABS-1")
    def what_tuning_brings_at_most(self, runs):
        return number(reduction(_p99(runs["ii"]), _p99(runs["iii"])))

    @claim("ATC20-ABS-2", why=LARGER)
    def what_sharing_costs(self, runs):
        return number(_more(runs, "ii"))

    def _best(self, runs):
        return max(reduction(_p99(runs["ii"]), _p99(runs[name])) for name in ("iii", "iv", "v"))


def _p99(run):
    return run.workload("high").latency_p99_us


def _more(runs, name):
    return change(_p99(runs["i"]), _p99(runs[name]))
