"""Shared by ddio-bench's figures: masks, rates on the wire, and the application that most of them run."""

from __future__ import annotations

from typing import Any

WAYS = 11
"""Ways of the Gold 6140's LLC; DDIO has the leftmost ones."""
WIRE_OVERHEAD = 24
"""Checksum, preamble and gap of a packet on the wire, in bytes. Offered rates and the artifact's throughput include
them."""
CAMPUS = [[60, 0.269], [300, 0.118], [1514, 0.613]]
"""The campus trace: 26.9 % of frames below 100 B and 11.8 % up to 500 B (CacheDirector, EuroSys 2019); mean 981 B."""

READ_WINDOW = 7400
"""Bytes of reads that the paper's NIC has in flight (docs/scenarios.md, Window)."""
NIC = {"nic.nic0.read_window": READ_WINDOW}
"""Overrides that give the NIC of a built-in scenario the paper's read window."""


def ddio(ways: int, of: int = WAYS) -> str:
    """The mask of `ways` DDIO ways, counted from the left, in which direction IIO_LLC_WAYS grows."""
    return hex(((1 << ways) - 1) << (of - ways))


def cores(count: int) -> str:
    """The list of the first `count` cores."""
    return "0" if count == 1 else f"0-{count - 1}"


def link_gbps(packets_per_s: float, packet_bytes: float) -> float:
    """Packets of a size as a rate on the wire, Gb/s."""
    return packets_per_s * (packet_bytes + WIRE_OVERHEAD) * 8 / 1e9


def mean_bytes(mix: list[list[float]] = CAMPUS) -> float:
    """Mean packet size of a mix."""
    return sum(size * weight for size, weight in mix) / sum(weight for _, weight in mix)


def write_hits(run: Any) -> float:
    """PCIe write hit rate, percent."""
    return 100 * run.system.dca_write_hit_ratio


def read_hits(run: Any) -> float:
    """PCIe read hit rate, percent."""
    return 100 * run.system.dca_read_hit_ratio


def change(before: float, after: float) -> float:
    """Percent change; negative is less."""
    return 100 * (after / before - 1)


def reduction(before: float, after: float) -> float:
    """Percent reduction; positive is less."""
    return -change(before, after)


def forwarders(count: int, nic: dict[str, Any], chip: str = "gold-6140", **workload: Any) -> dict[str, Any]:
    """L2 forwarders on the first cores behind one NIC, at the artifact's flows."""
    return {
        "name": "ddio-bench",
        "chip": chip,
        "duration_s": 0.06,
        "warmup_s": 0.03,
        "measure_s": 0.03,
        "time_factor": 1,
        "interval_s": 0.01,
        "nic": [{"name": "nic0", "flows": 4096, "flow_order": "random", "read_window": READ_WINDOW, **nic}],
        "workload": [{"name": "l2fwd", "program": "l2fwd", "cores": cores(count), **workload}],
    }
