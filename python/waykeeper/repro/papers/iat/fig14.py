"""IAT Fig. 14: Redis beside applications that overlap DDIO's ways."""

from waykeeper.repro import MEDIUM, Case, Figure, Panel, Points, Series, checks, claim, span
from waykeeper.repro.bands import EFFECT

from . import apps
from .apps import MIXES, unseen
from .switching import memory

HUNGRY = ("mcf", "omnetpp", "xalancbmk", "rocksdb-a")
WIDER = HUNGRY[:2]
"""Co-runners beside which DDIO also has four ways."""
LOST = 24.5
"""Largest loss of Redis's throughput without IAT, per cent (F14-1a)."""
RARELY_EVICTED = (
    "cores read the lines of a request within microseconds after arrival, and Redis's records and the "
    "switch's buffers are in three ways of their own. So an application in DDIO's ways evicts few lines of "
    "either"
)


class Fig14(Figure):
    id = "iat/fig14"
    title = "Redis beside applications that overlap DDIO"
    assumes = [
        *apps.ASSUMES,
        (
            "throughput is that of closed-loop clients: requests per busy cycle of the store's cores, calculated "
            "from its IPC"
        ),
        "co-runners in DDIO's ways: mcf, omnetpp, xalancbmk and RocksDB in turn, and X-Mem with 10 MB",
    ]

    def cases(self, quick):
        for mix in ("a", "c") if quick else MIXES:
            yield Case((mix, "solo"), _beside(None, "apart", mix), policies=["baseline"])
            for app in HUNGRY[:1] if quick else HUNGRY:
                yield Case((mix, app), _beside(app, "overlap", mix), policies=["baseline", "iat"])
            yield Case((mix, "x-mem"), _beside("mcf", "hungry", mix), policies=["baseline", "iat"])
            for app in HUNGRY[:1] if quick else WIDER:
                four = {"knobs.dca_ways": "0x780"}
                yield Case(("wider", mix, app), _beside(app, "overlap", mix), four, policies=["baseline"])

    def panels(self, runs):
        mixes = _mixes(runs)
        for what, y, published in (
            (_slower, "throughput lost, %", [7.1, 24.5]),
            (_longer, "mean latency gained, %", [7.9, 26.5]),
            (_tail, "p99 gained, %", [10.1, 20.4]),
        ):
            values = {policy: [max(_all(runs, mix, what, policy)) for mix in mixes] for policy in ("baseline", "iat")}
            yield Panel(
                y.split(",")[0],
                x="YCSB mix",
                y=y,
                series=[Series(policy, mixes, worst) for policy, worst in values.items()],
                published=[Points("least and most, paper's baseline", mixes[:1] + mixes[-1:], published)],
            )

    def _span(self, runs, what, policy):
        worst = [max(_all(runs, mix, what, policy)) for mix in _mixes(runs)]
        # What is no effect without IAT is nothing that IAT could mend.
        there = max(max(_all(runs, mix, what, "baseline")) for mix in _mixes(runs)) > EFFECT.percent
        return span(min(worst), max(worst), shape=there)

    def _span_under_iat(self, runs, what, effect, published):
        without = max(max(_all(runs, mix, what, "baseline")) for mix in _mixes(runs))
        return unseen(effect, without, published) or self._span(runs, what, "iat")

    @claim(
        "ISCA21-F14-1a",
        MEDIUM,
        "number with two ends, but computed from the IPC of a substitute for Redis with assumed work per request",
        why=RARELY_EVICTED,
    )
    def throughput(self, runs):
        return self._span(runs, _slower, "baseline")

    @claim(
        "ISCA21-F14-1b",
        MEDIUM,
        "number with two ends, but computed from the IPC of a substitute for Redis with assumed work per request",
        why=RARELY_EVICTED,
    )
    def throughput_under_iat(self, runs):
        return self._span_under_iat(runs, _slower, "Redis's throughput falls by at most", LOST)

    @claim(
        "ISCA21-F14-2a",
        MEDIUM,
        "number with two ends, but the clients' rate and so the queueing are our assumptions",
        why=RARELY_EVICTED,
    )
    def latency(self, runs):
        return self._span(runs, _longer, "baseline")

    @claim(
        "ISCA21-F14-2b",
        MEDIUM,
        "number with two ends, but the clients' rate and so the queueing are our assumptions",
        why=RARELY_EVICTED,
    )
    def latency_under_iat(self, runs):
        return self._span_under_iat(runs, _longer, "Redis's mean latency rises by at most", 26.5)

    @claim(
        "ISCA21-F14-3a",
        MEDIUM,
        "number with two ends, but the clients' rate and so the queueing are our assumptions",
        why=RARELY_EVICTED,
    )
    def tail(self, runs):
        return self._span(runs, _tail, "baseline")

    @claim(
        "ISCA21-F14-3b",
        MEDIUM,
        "number with two ends, but the clients' rate and so the queueing are our assumptions",
        why=RARELY_EVICTED,
    )
    def tail_under_iat(self, runs):
        return self._span_under_iat(runs, _tail, "Redis's p99 latency rises by at most", 20.4)

    @claim(
        "ISCA21-S6C-3",
        MEDIUM,
        "ordering of two DDIO sizes for Redis and for memory traffic; the model could show the reverse",
        why=RARELY_EVICTED,
    )
    def more_ways_are_a_gain_all_the_same(self, runs):
        two, four, traffic = [], [], []
        for _, mix, app in [key for key in runs if key[0] == "wider"]:
            alone = _stores(runs[mix, "solo"])
            narrow, wide = runs[mix, app].policy("baseline"), runs["wider", mix, app].policy("baseline")
            two.append(_slower(alone, _stores(narrow)))
            four.append(_slower(alone, _stores(wide)))
            traffic.append(memory(wide) < memory(narrow))
        missing = unseen("with two DDIO ways Redis's throughput falls by at most", max(two), LOST)
        return missing or checks(
            {
                "on average Redis loses less throughput when DDIO, which overlaps the co-runner, has four ways": sum(
                    four
                )
                < sum(two),
                "memory traffic falls beside every co-runner": all(traffic),
            }
        )


def _beside(app, place, mix):
    return apps.colocated("redis", app, place, mix, network_first=True)


def _mixes(runs):
    return [mix for mix in MIXES if (mix, "solo") in runs]


def _stores(run):
    return [metrics for name, metrics in run.workloads.items() if name.startswith("redis")]


def _all(runs, mix, what, policy):
    """Effect of each co-runner on the store under a mix, in per cent."""
    alone = _stores(runs[mix, "solo"])
    beside = [_stores(runs[key].policy(policy)) for key in runs if key[0] == mix and key[1] != "solo"]
    return [what(alone, stores) for stores in beside]


def _mean(stores, metric):
    return sum(store[metric] for store in stores) / len(stores)


def _slower(alone, beside):
    return 100 * (1 - _mean(beside, "ipc") / _mean(alone, "ipc"))


def _longer(alone, beside):
    return 100 * (_mean(beside, "latency_mean_us") / _mean(alone, "latency_mean_us") - 1)


def _tail(alone, beside):
    return 100 * (_mean(beside, "latency_p99_us") / _mean(alone, "latency_p99_us") - 1)
