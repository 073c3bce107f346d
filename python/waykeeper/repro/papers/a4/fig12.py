"""A4 Fig. 12: DPDK-T's latency and throughput while FIO's blocks grow."""

from waykeeper.repro import MEDIUM, STRONG, Case, Figure, Panel, Series, checks, claim, knee, number
from waykeeper.repro.bands import higher, not_higher

from .common import change

KIB = [4, 32, 128, 512, 2048]
POLICIES = ("default", "isolate", "a4")


class Fig12(Figure):
    id = "a4/fig12"
    title = "DPDK-T under Default, Isolate and A4 over the block size"
    assumes = ["the set-up of Fig. 11 with 1514-byte packets"]

    def cases(self, quick):
        for kib in (4, 128, 2048) if quick else KIB:
            yield Case(kib, "a4-fig12", {"workload.fio.block": f"{kib}k"}, policies=POLICIES)

    def panels(self, runs):
        blocks = runs.keys()
        for what, title, y in ((_latency, "DPDK-T's mean latency", "us"), (_mpps, "DPDK-T's throughput", "Mpackets/s")):
            series = [Series(policy, blocks, [what(runs[kib], policy) for kib in blocks]) for policy in POLICIES]
            yield Panel(title, x="block, KiB", y=y, series=series, log_x=True)

    @claim(
        "ISCA25-F12-1",
        STRONG,
        "a number that no constant was fitted on; full rings could have kept the latency where it was",
    )
    def a4_lowers_latency(self, runs):
        return number(change(_latency(runs[2048], "a4"), _latency(runs[2048], "default")))

    @claim("ISCA25-F12-2", STRONG, "a number that no constant was fitted on; the gain could have been none")
    def a4_raises_throughput(self, runs):
        return number(change(_mpps(runs[2048], "a4"), _mpps(runs[2048], "default")))

    @claim(
        "ISCA25-F12-3",
        MEDIUM,
        "one direction of latency and throughput under two policies; the model could show the reverse",
    )
    def larger_blocks_cost(self, runs):
        first, last = runs[4], runs[2048]
        found = {}
        for policy in ("default", "isolate"):
            found[f"latency rises under {policy}"] = higher(_latency(last, policy), _latency(first, policy))
            found[f"throughput does not rise under {policy}"] = not_higher(_mpps(last, policy), _mpps(first, policy))
        return checks(found)

    @claim("ISCA25-F12-4", MEDIUM, "an order of two policies; the model could show the reverse")
    def isolate_is_worse(self, runs):
        first, last = runs[4], runs[2048]
        slopes = [_latency(last, policy) / _latency(first, policy) for policy in ("isolate", "default")]
        return checks({"latency rises more under Isolate than under Default": slopes[0] > slopes[1]})

    @claim(
        "ISCA25-F12-5",
        MEDIUM,
        "a knee on a coarse grid, whose point 128 KB must be the last one; nothing was fitted on it",
        why="detection depends on the DCA write misses of all devices, which A4 compares with a threshold of 40 %",
    )
    def storage_is_flagged_above_a_block_size(self, runs):
        flagged = [kib for kib in runs.keys() if _flagged(runs[kib])]
        blocks = runs.keys()
        first = min(flagged, default=None)
        below = [kib for kib in blocks if first is not None and kib < first]
        return knee(below[-1] if below else None, first is not None and flagged == [k for k in blocks if k >= first])


def _flagged(run):
    return any(decision["action"] == "storage-antagonist" for decision in run.policy("a4").decisions)


def _latency(run, policy):
    return run.policy(policy).workload("dpdk-t").latency_mean_us


def _mpps(run, policy):
    return run.policy(policy).workload("dpdk-t").throughput / 1e6
