"""The processors of the guests: the processor that QEMU emulates, and the CPUID leaves that QEMU does not implement.

This module must not depend on how the answers reach the guest. The numbers are those of the recorded hosts
(crates/vhost/tests/transcripts, virtual-host.md 0): with other numbers the transcripts would differ.

Sources of the leaves: Intel SDM 2A, CPUID, leaves 07H, 0FH and 10H; AMD64 Architecture Programmer's Manual 3, appendix E,
Fn0000_000F, Fn0000_0010, Fn8000_0008 and Fn8000_0020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Leaf = tuple[int, int, int, int]
"""EAX, EBX, ECX, EDX."""

CQM = 1 << 12
"""Leaf 7, EBX: resource director technology monitoring."""
RDT_A = 1 << 15
"""Leaf 7, EBX: resource director technology allocation."""


@dataclass(frozen=True)
class Processor:
    """A processor: QEMU's argument, and the changes of its CPUID leaves."""

    name: str
    cpu: str
    """Value of QEMU's -cpu."""
    replaced: dict[tuple[int, int], Leaf]
    """Leaf and subleaf -> complete answer."""
    added: dict[tuple[int, int], Callable[[Leaf], Leaf]] = field(default_factory=dict)
    """Leaf and subleaf -> function that changes the processor's own answer."""

    def touches(self, leaf: int, subleaf: int) -> bool:
        return (leaf, subleaf) in self.replaced or (leaf, subleaf) in self.added


def _or_ebx(bits: int) -> Callable[[Leaf], Leaf]:
    return lambda own: (own[0], own[1] | bits, own[2], own[3])


INTEL = Processor(
    name="intel",
    # level: the highest basic leaf, so that the kernel asks for 0FH and 10H. cx16=off: Linux 6.12 on QEMU 7.2 crashes in
    # every second boot with CMPXCHG16B (virtual-host.md 6).
    cpu="Icelake-Server,level=0x14,cx16=off",
    replaced={
        # Monitoring of the third level: 144 RMIDs; occupancy in units of 45056 bytes; all three events.
        (0xF, 0): (0, 143, 0, 1 << 1),
        (0xF, 1): (0, 45056, 143, 0b111),
        # Allocation: L3 (bit 1) and memory bandwidth (bit 3).
        (0x10, 0): (0, 1 << 1 | 1 << 3, 0, 0),
        # 11 ways, the top two shared with devices, code and data apart (ECX bit 2), 16 classes.
        (0x10, 1): (11 - 1, 0x600, 1 << 2, 16 - 1),
        # At most 90 percent of delay, linear (ECX bit 2), 8 classes.
        (0x10, 3): (90 - 1, 0, 1 << 2, 8 - 1),
    },
    added={(7, 0): _or_ebx(CQM | RDT_A)},
)

AMD = Processor(
    name="amd",
    cpu="EPYC-Milan,level=0x10,cx16=off",
    replaced={
        (0xF, 0): (0, 255, 0, 1 << 1),
        (0xF, 1): (0, 64, 255, 0b111),
        (0x10, 0): (0, 1 << 1, 0, 0),
        # 16 ways, none shared with devices, code and data apart, 16 classes.
        (0x10, 1): (16 - 1, 0, 1 << 2, 16 - 1),
        # Bandwidth (bit 1), bandwidth of slow memory (bit 2), configurable events (bit 3).
        (0x80000020, 0): (0, 0b1110, 0, 0),
        # Limits up to 1 << 11, 16 classes.
        (0x80000020, 1): (11, 0, 0, 16 - 1),
        (0x80000020, 2): (11, 0, 0, 16 - 1),
        # Two configurable events of seven kinds of traffic.
        (0x80000020, 3): (0, 2, 0x7F, 0),
    },
    added={
        (7, 0): _or_ebx(CQM | RDT_A),
        # The highest extended leaf.
        (0x80000000, 0): lambda own: (max(own[0], 0x80000020), *own[1:]),
        # Bit 6: memory bandwidth enforcement.
        (0x80000008, 0): _or_ebx(1 << 6),
    },
)
