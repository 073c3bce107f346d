"""IAT Fig. 13: latency of RocksDB beside Redis or a service chain."""

from waykeeper.repro import WEAK, Figure, Panel, Points, Series, claim, span

from . import apps
from .apps import MIXES, slowdown, unseen

NETWORKS = ("redis", "nfv")
WORST = {"redis": ("Redis", 14.1), "nfv": ("the service chain", 19.7)}
"""Name of each network application and the largest effect without IAT, per cent (F13-1, 2)."""


class Fig13(Figure):
    id = "iat/fig13"
    title = "Latency of RocksDB beside Redis and a service chain"
    assumes = [*apps.ASSUMES, "latency is the mean over all operations of a mix, with the weights of the mix"]

    def cases(self, quick):
        for mix in ("a", "c") if quick else MIXES:
            yield apps.solo(f"rocksdb-{mix}")
            for network in NETWORKS:
                yield from apps.cases(network, f"rocksdb-{mix}")

    def panels(self, runs):
        mixes = _stores(runs)
        for network, (name, worst) in WORST.items():
            ours = {policy: [_more(runs, app, network, policy) for app in mixes] for policy in ("baseline", "iat")}
            yield Panel(
                f"beside {name}",
                x="application",
                y="mean latency above solo, %",
                series=[Series(policy, mixes, values) for policy, values in ours.items()],
                published=[Points("worst baseline, paper", mixes[:1], [worst])],
            )

    def _under_iat(self, runs, network):
        name, published = WORST[network]
        without = max(_more(runs, app, network, "baseline") for app in _stores(runs))
        missing = unseen(f"RocksDB's mean latency beside {name} rises by at most", without, published)
        return missing or self._worst(runs, network, "iat")

    def _worst(self, runs, network, policy):
        return span(0.0, max(_more(runs, app, network, policy) for app in _stores(runs)))

    @claim(
        "ISCA21-F13-1",
        WEAK,
        "same finding as ISCA21-F12-4: the mean latency of one thread is one over its throughput",
        why="see F12-1: Redis writes few lines",
    )
    def beside_redis(self, runs):
        return self._worst(runs, "redis", "baseline")

    @claim(
        "ISCA21-F13-2",
        WEAK,
        "same finding as ISCA21-F12-5: the mean latency of one thread is one over its throughput",
        why="see F12-5: half of the store's hot set is in its MLC",
    )
    def beside_the_chain(self, runs):
        return self._worst(runs, "nfv", "baseline")

    @claim(
        "ISCA21-F13-3",
        WEAK,
        "same finding as ISCA21-F12-6: the mean latency of one thread is one over its throughput",
        why="lower than published: IAT's shuffle moves it out of DDIO's ways, and memory bandwidth is not a bottleneck",
    )
    def beside_redis_under_iat(self, runs):
        return self._under_iat(runs, "redis")

    @claim(
        "ISCA21-F13-4",
        WEAK,
        "same finding as ISCA21-F12-7: the mean latency of one thread is one over its throughput",
        why="lower than published: IAT's shuffle moves it out of DDIO's ways, and memory bandwidth is not a bottleneck",
    )
    def beside_the_chain_under_iat(self, runs):
        return self._under_iat(runs, "nfv")


def _stores(runs):
    return [app for app in apps.APPS if (app, "solo") in runs]


def _more(runs, app, network, policy):
    return slowdown(runs, app, network, "overlap", policy, "latency_mean_us")
