"""The aggregation model of IAT s6.B as scenarios: Open vSwitch on two cores and two ways in front of test-pmd containers."""

LINE_GBPS = 40
TENANT_MASKS = ("0x004", "0x008", "0x010", "0x020", "0x040")


def aggregated(nic, containers=2, **times):
    """Two NICs as in `nic`, one switching core for each, and containers with two cores and one way, assigned to them
    in turn."""
    workloads = []
    for index in (0, 1):
        switch = {"program": "vswitch", "nic": f"nic{index}", "stack": True, "shared_pool": True}
        workloads.append({"name": f"ovs{index}", "cores": str(index), "priority": "high", "mask": "0x003", **switch})
    for index in range(containers):
        tenant = {"program": "testpmd", "cores": f"{2 + 2 * index}-{3 + 2 * index}", "switch": f"ovs{index % 2}"}
        workloads.append({"name": f"container{index}", "priority": "high", "mask": TENANT_MASKS[index], **tenant})
    return {
        "name": "iat-switch",
        "time_factor": 20,
        "warmup_s": 1,
        "measure_s": 3,
        **times,
        "policies": ["baseline", "iat"],
        "nic": [{"name": f"nic{index}", "gbps": LINE_GBPS, "ring": 1024, **nic} for index in (0, 1)],
        "workload": workloads,
    }


def switch(run, metric):
    """Mean of a metric over the switch's cores."""
    return sum(run.workload(name)[metric] for name in ("ovs0", "ovs1")) / 2


def cycles_per_packet(run):
    """Cycles of the switch per packet; its cores poll without a pause at 2.3 GHz (s6.A)."""
    return 2.3e9 / switch(run, "throughput")


def memory(run):
    """Bytes to and from memory per second."""
    return run.system.memory_read_bytes_per_s + run.system.memory_write_bytes_per_s


def ddio(run):
    """Lines that devices updated, and lines that they allocated, per second."""
    lines, hit = run.system.inbound_bytes_per_s / 64, run.system.dca_write_hit_ratio
    return lines * hit, lines * (1 - hit)
