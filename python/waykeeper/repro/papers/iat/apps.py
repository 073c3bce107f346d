"""The co-location of IAT s6.C as scenarios: a networking application, an application in a container of its own, two X-Mems.

Nine cores: Redis and the switch, or four service chains, share three ways; three containers have two ways each.
"""

from waykeeper.repro import Case

SPEC = ("mcf", "omnetpp", "xalancbmk", "lbm", "bwaves", "parest")
MIXES = ("a", "b", "c")
APPS = {name: {"program": "spec", "benchmark": name} for name in SPEC}
APPS |= {f"rocksdb-{mix}": {"program": "rocksdb", "mix": mix} for mix in MIXES}

PLACES = {
    "overlap": ("0x600", "0x018", "0x060"),
    "apart": ("0x018", "0x600", "0x060"),
    "hungry": ("0x018", "0x060", "0x600"),
}
"""Ways of the application, the X-Mem of 1 MB and the one of 10 MB: who sits on DDIO's 0x600."""

APPLICATIONS = ("app", "small", "large")
NETWORK_MASK = "0x007"
REQUEST_BYTES = {"a": 640, "b": 180, "c": 128}
"""Mean size of a request: a read is a key, an update brings the record."""
UPDATES = {"a": 0.5, "b": 0.05, "c": 0.0}
ASSUMES = [
    "SPEC CPU2006 by the profiles of the same programs of CPU2017",
    "Redis over DPDK-ANS is the key-value store `memcached` behind the virtual switch, with 1.5 us of work a request; clients ask at an "
    "even mean rate (open loop) of about half of what the cores can serve",
    "the service chain is `nfv-chain`; 20 Gb/s a VLAN is both 40-Gb/s ports at line rate",
    "YCSB's mixes A, B and C; the model has no scans and no inserts",
]


def colocated(network, app, place, mix="a", network_first=False):
    """`network` (`redis`, `nfv` or none: solo) beside an application and, unless solo, the two X-Mems.

    Whoever is compared with its solo run comes first: its memory is then the same, and so are the sampled lines of it.
    """
    masks = PLACES[place]
    workloads = [_container("app", 6, masks[0], "high", APPS[app])] if app else []
    if network and app:
        workloads += [_xmem("small", 7, masks[1], "1 MiB"), _xmem("large", 8, masks[2], "10 MiB")]
    nics = []
    if network == "redis":
        workloads += _redis(mix)
        nics = [_nic(index, REQUEST_BYTES[mix], _REDIS_GBPS[mix], 64, "exponential") for index in (0, 1)]
    elif network == "nfv":
        workloads += [_chain(index) for index in range(4)]
        nics = [_nic(index, 1514, 40, 1000, "even") for index in (0, 1)]
    return {
        "name": "iat-apps",
        "time_factor": 40,
        "duration_s": 12,
        "warmup_s": 1,
        "measure_s": 4,
        "policies": ["baseline", "iat"],
        "policy": {"iat": {"tenant_sizing": False}},  # s6.C
        "nic": nics,
        "workload": sorted(workloads, key=lambda workload: (workload["name"] in APPLICATIONS) == network_first),
    }


_REDIS_GBPS = {"a": 1.25, "b": 0.4, "c": 0.3}


def solo(app):
    """The application alone in its two ways."""
    return Case((app, "solo"), colocated(None, app, "apart"), policies=["baseline"])


def cases(network, app, mix="a", places=("overlap", "apart")):
    """An application that overlaps DDIO, with and without IAT, and one that does not."""
    for place in places:
        policies = ["baseline"] if place == "apart" else ["baseline", "iat"]
        yield Case((app, network, place), colocated(network, app, place, mix), policies=policies)


def slowdown(runs, app, network, place, policy="baseline", metric="throughput"):
    """Execution time beyond that of the solo run, percent; with `latency_mean_us` the mean latency beyond it."""
    alone = runs[app, "solo"].workload("app")[metric]
    ours = runs[app, network, place].policy(policy).workload("app")[metric]
    return 100 * ((alone / ours if metric == "throughput" else ours / alone) - 1)


def lost(runs, app, network, place, policy="baseline"):
    """Throughput below that of the solo run, percent."""
    slower = slowdown(runs, app, network, place, policy)
    return 100 * slower / (100 + slower)


def _container(name, core, mask, priority, program):
    return {"name": name, "cores": str(core), "mask": mask, "priority": priority, **program}


def _xmem(name, core, mask, working_set):
    return _container(name, core, mask, "low", {"program": "x-mem", "working_set": working_set, "pattern": "random"})


def _nic(index, size, gbps, flows, arrivals):
    return {
        "name": f"nic{index}",
        "gbps": 40,
        "offered_gbps": gbps,
        "ring": 1024,
        "packet_bytes": size,
        "flows": flows,
        "arrivals": arrivals,
    }


def _redis(mix):
    """s6.C: two containers of two cores behind a switch of two cores, a million records of 1 KB each."""
    store = {
        "program": "memcached",
        "records": 1000000,
        "value_bytes": 1000,
        "write_share": UPDATES[mix],
        "base_ns": 1500,
    }
    for index in (0, 1):
        switch = {"program": "vswitch", "nic": f"nic{index}", "stack": True, "shared_pool": True}
        yield _container(f"ovs{index}", index, NETWORK_MASK, "high", switch)
    for index in (0, 1):
        cores = f"{2 + 2 * index}-{3 + 2 * index}"
        yield _container(f"redis{index}", cores, NETWORK_MASK, "high", {**store, "switch": f"ovs{index}"})


def _chain(index):
    chain = {"program": "nfv-chain", "nic": f"nic{index // 2}", "share": 1}
    return _container(f"chain{index}", index, NETWORK_MASK, "high", chain)
