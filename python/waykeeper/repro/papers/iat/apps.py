"""The co-location of IAT s6.C as scenarios: a networking application, one application in its own container, two X-Mems.

Nine cores: Redis and the switch, or four service chains, share three ways; each of the other three containers has two ways.
"""

from waykeeper.repro import Case, absent, lacks

SPEC = ("mcf", "omnetpp", "xalancbmk", "lbm", "bwaves", "parest")
MIXES = ("a", "b", "c")
APPS = {name: {"program": "spec", "benchmark": name} for name in SPEC}
APPS |= {f"rocksdb-{mix}": {"program": "rocksdb", "mix": mix} for mix in MIXES}

PLACES = {
    "overlap": ("0x600", "0x018", "0x060"),
    "apart": ("0x018", "0x600", "0x060"),
    "hungry": ("0x018", "0x060", "0x600"),
}
"""Masks of the application, the X-Mem of 1 MB and the X-Mem of 10 MB; 0x600 are DDIO's ways."""

APPLICATIONS = ("app", "small", "large")
NETWORK_MASK = "0x007"
REQUEST_BYTES = {"a": 640, "b": 180, "c": 128}
"""Mean size of a request: a read has a key, an update also the record."""
UPDATES = {"a": 0.5, "b": 0.05, "c": 0.0}
ASSUMES = [
    "SPEC CPU2006 programs are replaced by profiles of the same programs of CPU2017",
    (
        "Redis over DPDK-ANS is replaced by the key-value store `memcached` behind the virtual switch, with 1.5 "
        "us of work per request; clients send requests at a constant mean rate (open loop), about half of what "
        "the cores can serve"
    ),
    "the service chain is the program `nfv-chain`; 20 Gb/s per VLAN fill both 40-Gb/s ports",
    "only YCSB's mixes A, B and C; the model has no scans and no inserts",
]


def colocated(network, app, place, mix="a", network_first=False):
    """`network` (`redis`, `nfv` or none: solo) beside an application and, unless solo, the two X-Mems.

    The workloads that are compared with their solo run are listed first: then their memory, and so their sampled lines,
    are the same in both runs.
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
    """Cases of an application whose ways overlap DDIO's, with and without IAT, and of one whose ways do not."""
    for place in places:
        policies = ["baseline"] if place == "apart" else ["baseline", "iat"]
        yield Case((app, network, place), colocated(network, app, place, mix), policies=policies)


def slowdown(runs, app, network, place, policy="baseline", metric="throughput"):
    """Increase of the execution time over the solo run in per cent; with `latency_mean_us`, of the mean latency."""
    alone = runs[app, "solo"].workload("app")[metric]
    ours = runs[app, network, place].policy(policy).workload("app")[metric]
    return 100 * ((alone / ours if metric == "throughput" else ours / alone) - 1)


def lost(runs, app, network, place, policy="baseline"):
    """Loss of throughput against the solo run, in per cent."""
    slower = slowdown(runs, app, network, place, policy)
    return 100 * slower / (100 + slower)


def unseen(effect, ours, published):
    """`absent` if an effect without IAT is less than half of the published one, for claims on what IAT leaves of it."""
    if not lacks(ours, published):
        return None
    return absent(f"without IAT {effect} {ours:.3g} %, the paper has up to {published:g} %")


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
    """s6.C: two containers with two cores and a million records of 1 KB each, behind a switch with two cores."""
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
