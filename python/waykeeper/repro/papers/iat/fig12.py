"""IAT Fig. 12: SPEC and RocksDB beside Redis or a service chain, in ways that may overlap DDIO's."""

from waykeeper.repro import Case, Figure, Panel, Points, Series, checks, claim, span

from . import apps
from .apps import SPEC, lost, slowdown

NETWORKS = ("redis", "nfv")
QUICK = ("xalancbmk", "lbm", "rocksdb-a", "rocksdb-c")
WIDER = ("mcf", "xalancbmk")


class Fig12(Figure):
    id = "iat/fig12"
    title = "Applications beside Redis and a service chain"
    assumes = apps.ASSUMES

    def cases(self, quick):
        for app in apps.APPS:
            if quick and app not in QUICK:
                continue
            yield apps.solo(app)
            for network in NETWORKS:
                yield from apps.cases(network, app)
        for app in WIDER[1:] if quick else WIDER:
            wider = apps.colocated("nfv", app, "overlap")
            yield Case((app, "nfv", "wider"), wider, {"knobs.dca_ways": "0x780"}, policies=["baseline"])

    def panels(self, runs):
        programs = _apps(runs)
        for network, name in (("redis", "Redis"), ("nfv", "the service chain")):
            yield Panel(
                f"beside {name}",
                x="application",
                y="execution time above solo, %",
                series=[
                    Series("overlapping DDIO", programs, [slowdown(runs, app, network, "overlap") for app in programs]),
                    Series("apart from it", programs, [slowdown(runs, app, network, "apart") for app in programs]),
                    Series("IAT", programs, [slowdown(runs, app, network, "overlap", "iat") for app in programs]),
                ],
                published=[Points("worst SPEC, paper", ["mcf"], [14.8 if network == "redis" else 24.9])],
            )

    def _span(self, runs, network, those, what, policy="baseline"):
        values = [what(runs, app, network, "overlap", policy) for app in _apps(runs) if app.startswith(those)]
        return span(min(values), max(values))

    @claim(
        "ISCA21-ABS-2",
        why="IAT keeps losses far below 10 %. The largest loss without IAT is half of the paper's, because in "
        "ours DDIO competes less with the applications",
    )
    def losses(self, runs):
        worst = {}
        for policy in ("baseline", "iat"):
            worst[policy] = max(
                lost(runs, app, network, "overlap", policy) for app in _apps(runs) for network in NETWORKS
            )
        return span(worst["iat"], worst["baseline"])

    @claim(
        "ISCA21-F12-1",
        why="Redis's requests write a tenth as many lines into DDIO's two ways as the service chain; records stay "
        "in memory",
    )
    def spec_beside_redis(self, runs):
        return self._span(runs, "redis", SPEC, slowdown)

    @claim(
        "ISCA21-F12-2",
        why="profiles that stream lose little by the overlap, and those that lose most lose less than the paper's "
        "programs",
    )
    def spec_beside_the_chain(self, runs):
        return self._span(runs, "nfv", SPEC, slowdown)

    @claim(
        "ISCA21-F12-3",
        why="lower than published: IAT moves the application completely out of DDIO's ways, and memory bandwidth "
        "is not a bottleneck",
    )
    def spec_under_iat(self, runs):
        values = [slowdown(runs, app, net, "overlap", "iat") for app in _apps(runs) if app in SPEC for net in NETWORKS]
        return span(0.0, max(values))

    @claim("ISCA21-F12-4", why="see F12-1: Redis writes few lines")
    def rocksdb_beside_redis(self, runs):
        return self._span(runs, "redis", "rocksdb", lost)

    @claim(
        "ISCA21-F12-5",
        why="the store's hot records of a Zipf mix stay in its MLC; the remaining loss is half of the paper's",
    )
    def rocksdb_beside_the_chain(self, runs):
        return self._span(runs, "nfv", "rocksdb", lost)

    @claim("ISCA21-F12-6", why="see F12-4: there is almost no loss beside Redis")
    def rocksdb_beside_redis_under_iat(self, runs):
        return self._span(runs, "redis", "rocksdb", lost, "iat")

    @claim(
        "ISCA21-F12-7",
        why="IAT's shuffle moves it completely out of DDIO's ways, and in ours memory bandwidth is not a bottleneck",
    )
    def rocksdb_beside_the_chain_under_iat(self, runs):
        return self._span(runs, "nfv", "rocksdb", lost, "iat")

    @claim("ISCA21-F12-8")
    def the_chain_hurts_more(self, runs):
        hurt = {net: sum(slowdown(runs, app, net, "overlap") for app in _apps(runs)) for net in NETWORKS}
        return checks({"applications lose more beside the chain than beside Redis": hurt["nfv"] > hurt["redis"]})

    @claim("ISCA21-F12-9")
    def the_baseline_spreads(self, runs):
        spreads = []
        for app in _apps(runs):
            overlap, apart = (slowdown(runs, app, "nfv", place) for place in ("overlap", "apart"))
            spreads.append((overlap - apart, slowdown(runs, app, "nfv", "overlap", "iat") - apart))
        worst = max(spreads)
        return checks(
            {
                "every application loses more when it overlaps DDIO's ways than when it does not": all(
                    wide > 0 for wide, _ in spreads
                ),
                "for the application with the largest additional loss, IAT removes over half of it": abs(worst[1])
                < 0.5 * worst[0],
            }
        )

    @claim("ISCA21-S6C-1")
    def the_chain_keeps_its_throughput(self, runs):
        rates = [
            _chains(runs[app, "nfv", "overlap"].policy(policy)) for app in _apps(runs) for policy in ("baseline", "iat")
        ]
        return checks({"the chain's throughput is within 2 % with and without IAT": min(rates) > 0.98 * max(rates)})

    @claim(
        "ISCA21-S6C-2",
        why="at line rate a packet's round-trip time is that of the send queue, which does not depend on the DDIO ways",
    )
    def round_trips_are_steadier(self, runs):
        found = {"p99": 0, "p99 minus p50": 0}
        programs = _apps(runs)
        for app in programs:
            times = [_times(runs[app, "nfv", "overlap"].policy(policy)) for policy in ("baseline", "iat")]
            found["p99"] += times[1][1] < times[0][1]
            found["p99 minus p50"] += times[1][1] - times[1][0] < times[0][1] - times[0][0]
        most = len(programs) / 2
        return checks({f"IAT lowers {name} beside most applications": count > most for name, count in found.items()})

    @claim("ISCA21-S6C-3", why="in ours four DDIO ways overlap two tenants instead of one")
    def more_ways_are_a_gain_all_the_same(self, runs):
        programs = [app for app in _apps(runs) if (app, "nfv", "wider") in runs]
        calmer = [slowdown(runs, app, "nfv", "wider") < slowdown(runs, app, "nfv", "overlap") for app in programs]
        saved = [
            _memory(runs[app, "nfv", "wider"]) < _memory(runs[app, "nfv", "overlap"].policy("baseline"))
            for app in programs
        ]
        return checks(
            {
                "an application that overlaps DDIO's ways loses less when DDIO has four ways": all(calmer),
                "memory traffic falls": all(saved),
            }
        )


def _apps(runs):
    return [app for app in apps.APPS if (app, "solo") in runs]


def _chains(run):
    return sum(metrics.throughput for name, metrics in run.workloads.items() if name.startswith("chain"))


def _times(run):
    chains = [metrics for name, metrics in run.workloads.items() if name.startswith("chain")]
    return max(chain.latency_p50_us for chain in chains), max(chain.latency_p99_us for chain in chains)


def _memory(run):
    return run.system.memory_read_bytes_per_s + run.system.memory_write_bytes_per_s
