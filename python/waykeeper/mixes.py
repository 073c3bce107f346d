"""Generated mixes: scenario files with 2 to 12 workloads, NICs, SSDs, phases and priorities on several chips.

    python -m waykeeper.mixes --seed 1 --count 40 --out mixes

The same seed and index give the same bytes. Every file is checked as a run checks it. Loads are what the programs can serve,
so that no mix drops most of its packets. This module must not know policies.

Three of four mixes are *contended*, as the mixes of the A4 and IAT papers are: the buffers of a loaded NIC are larger than the DCA
ways, programs whose data would fit into the LLC have mostly high priority, and programs and large storage requests that stream
through the LLC have mostly low priority. One in four is drawn without this, since a policy must also do no harm where there is
nothing to win. An earlier generator drew all mixes so: in the first twelve of them the best static layout that a search found had an
HPW mean of x1.00 to x1.04: the results of all policies were alike.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from . import outputs
from ._native import BadInput
from .catalog import chip
from .scenario import Scenario

CHIPS = ("gold-6140", "gold-5120", "gold-5320", "gold-6430", "e5-2667v3")
"""Skylake, Ice Lake and Sapphire Rapids with a non-inclusive LLC, and Haswell with an inclusive one and few classes."""

MILLION_PACKETS_PER_CORE = {
    "l2fwd": 5.0,
    "l3fwd": 3.0,
    "testpmd": 5.0,
    "fastclick": 2.4,
    "nfv-chain": 1.8,
    "dpdk-t": 2.0,
    "memcached": 0.2,
}
"""Packets per second that a core of a Gold 6140 serves with room to spare: below one over the work per packet
(docs/scenarios.md, `base_ns` and `delay_ns`) and its cache misses. Assumption; `test_mixes.py` measures the drops."""

UNCONTENDED_ROUND = 4
"""One round over the chips in this many is drawn without contention (ours)."""
SENSITIVE = ("mcf", "omnetpp", "parest", "xalancbmk", "xz")
"""SPEC programs whose cycles per instruction fall most with more ways (docs/programs.md)."""
STREAMING = ("lbm", "bwaves", "fotonik3d", "roms")
"""SPEC programs that read more than an LLC holds."""
PACKET_NS = {"fastclick": (215, 6.8), "dpdk-t": (212, 11.0), "nfv-chain": (230, 0.0), "memcached": (4000, 0.0)}
"""Programs of contended mixes, whose cores are busy: time of a packet and of each of its lines. Fitted to the loads at which the
virtual server began to drop packets when each ran alone on two cores of a Gold 6140, with 512 and 1514 bytes. dpdk-t, which reads
every line, has more per line (7.2 alone): it fell behind as soon as its packets left the LLC, and one such mix would decide a mean."""
FULL_LOAD = (0.65, 0.87)
"""Load of the busiest queue, relative to that."""
STORAGE = ("fio", "ffsb-heavy", "ffsb-light")
SPEC = ("gcc", "mcf", "parest", "lbm", "omnetpp", "xalancbmk", "x264", "bwaves", "cactuBSSN", "fotonik3d", "xz", "roms")
PACKET_BYTES = (128, 256, 512, 1024, 1514)
OTHER_RULES = (
    ("replacement", "random"),
    ("replacement", "lru"),
    ("migration", "no-copy"),
    ("migration", "dirty-copy"),
    ("inclusive_victim", "stays"),
    ("directory_ways", 8),
)
"""Rules of the cache model in which some mixes differ from the default: a policy must not depend on one replacement rule."""
FIRST_PHASE_S = (22, 30)
"""Changes come when a policy has had time to settle, and leave it 20 s or more before the measured stretch."""


class Draw:
    """Random choices made from `random()` alone, whose sequence Python promises to keep from version to version."""

    def __init__(self, seed: int, index: int) -> None:
        self._random = random.Random(f"waykeeper mix {seed} {index}")

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def part(self, low: float, high: float) -> float:
        """A number between the two, to two decimals."""
        return round(low + self._random.random() * (high - low), 2)

    def one(self, values: Sequence[Any]) -> Any:
        """One of the values."""
        return values[self.between(0, len(values) - 1)]


def is_contended(index: int) -> bool:
    """Whether the mix with this index has contention."""
    return index // len(CHIPS) % UNCONTENDED_ROUND != UNCONTENDED_ROUND - 1


def mix(seed: int, index: int) -> str:
    """The text of a generated scenario."""
    draw = Draw(seed, index)
    name = CHIPS[index % len(CHIPS)]
    spec = chip(name)
    # A policy needs a class per zone beside the kernel's default group.
    most = min(12, spec["cores"], max(3, spec["llc"]["clos"] - 1))
    contended = is_contended(index)
    kind = _Contended if contended else _Builder
    builder = kind(draw, spec, draw.between(min(5, most) if contended else 2, most))
    builder.fill()
    about = (
        f"Generated mix {index} of seed {seed}: {len(builder.workloads)} workloads{', contended' if contended else ''}"
    )
    tables: dict[str, Any] = {
        "name": f"mix-{seed}-{index:02}",
        "about": about,
        "chip": name,
        "duration_s": 70,
        "warmup_s": 10,
        "measure_s": 10,
        "time_factor": 20,
        "policies": ["default", "isolate", "iat", "a4-d", "waykeeper"],
        "knobs": {"prefetchers": draw.chance(0.25 if contended else 0.5)},
    }
    if draw.chance(0.4):
        rule, value = draw.one(OTHER_RULES)
        tables["model"] = {rule: value}
    if builder.nics:
        tables["nic"] = builder.nics
    if builder.storage:
        tables["storage"] = builder.storage
    tables["workload"] = builder.workloads
    return tomli_w.dumps(tables)


class _Builder:
    """Adds workloads until there are enough or the cores are used."""

    def __init__(self, draw: Draw, spec: Mapping[str, Any], wanted: int) -> None:
        self.draw, self.free, self.wanted, self.next_core = draw, spec["cores"], wanted, 0
        self.llc_mib = spec["llc"]["slices"] * spec["llc"]["sets"] * spec["llc"]["ways"] * 64 / 2**20
        self.nics: list[dict[str, Any]] = []
        self.storage: list[dict[str, Any]] = []
        self.workloads: list[dict[str, Any]] = []

    def fill(self) -> None:
        """All workloads; at least one uses a device, and at least one of each priority."""
        kinds = [self._network if self.draw.chance(0.75) else self._storage]
        while len(kinds) < self.wanted:
            roll = self.draw.part(0, 1)
            if roll < 0.2 and len(self.nics) + kinds.count(self._network) < 2:
                kinds.append(self._network)
            elif roll < 0.4 and kinds.count(self._storage) < 2:
                kinds.append(self._storage)
            elif roll < 0.5:
                kinds.append(self._x_mem)
            else:
                kinds.append(self._spec)
        for position, kind in enumerate(kinds):
            # Every later workload needs a core.
            self.free_now = self.free - (len(kinds) - position - 1)
            kind()
        priorities = ["high" if self.draw.chance(0.5) else "low" for _ in self.workloads]
        if len(set(priorities)) == 1:
            priorities[-1] = "low" if priorities[0] == "high" else "high"
        for workload, priority in zip(self.workloads, priorities):
            workload["priority"] = priority
        self._come_and_go()

    def _add(self, name: str, program: str, count: int, **keys: Any) -> dict[str, Any]:
        first, last = self.next_core, self.next_core + count - 1
        self.next_core += count
        self.free -= count
        cores = str(first) if count == 1 else f"{first}-{last}"
        workload = {"name": f"{name}-{len(self.workloads)}", "program": program, "cores": cores, **keys}
        self.workloads.append(workload)
        return workload

    def _network(self) -> None:
        program = self.draw.one(tuple(MILLION_PACKETS_PER_CORE))
        count = min(self.draw.between(1, 4), self.free_now)
        packet = self.draw.one(PACKET_BYTES)
        gbps = count * MILLION_PACKETS_PER_CORE[program] * (packet + 20) * 8 / 1000
        offered = round(min(gbps * self.draw.part(0.5, 0.9), 95.0), 1)
        nic: dict[str, Any] = {
            "name": f"nic{len(self.nics)}",
            "gbps": 100,
            "offered_gbps": offered,
            "packet_bytes": packet,
            "flows": 1024,
            "imbalance": 1,
            "ring": self.draw.one((512, 1024, 2048)),
        }
        if self.draw.chance(0.3):
            nic["phase"] = [{"at_s": self.draw.between(*FIRST_PHASE_S), "offered_part": self.draw.part(0.2, 0.6)}]
        self.nics.append(nic)
        self._add(program, program, count, nic=nic["name"])

    def _storage(self) -> None:
        program = self.draw.one(STORAGE)
        array = {"name": f"raid{len(self.storage)}", "drives": self.draw.between(1, 4)}
        self.storage.append(array)
        keys: dict[str, Any] = {"storage": array["name"]}
        if program == "fio":
            keys["block"] = self.draw.one(("16 KiB", "128 KiB", "512 KiB", "2 MiB"))
        self._add(program, program, min(self.draw.between(1, 3), self.free_now), **keys)

    def _x_mem(self) -> None:
        keys: dict[str, Any] = {
            "working_set": f"{self.draw.one((2, 4, 8, 16, 64))} MiB",
            "pattern": self.draw.one(("random", "sequential")),
        }
        if self.draw.chance(0.3):
            grown = f"{self.draw.one((4, 10, 32))} MiB"
            keys["phase"] = [{"at_s": self.draw.between(*FIRST_PHASE_S), "working_set": grown}]
        self._add("x-mem", "x-mem", 1, **keys)

    def _spec(self) -> None:
        benchmark = self.draw.one(SPEC)
        self._add(benchmark, "spec", 1, benchmark=benchmark)

    def _come_and_go(self) -> None:
        """One program without devices may start late."""
        others = [workload for workload in self.workloads if workload["program"] == "spec"]
        if len(others) > 1 and self.draw.chance(0.25):
            self.draw.one(others)["start_s"] = self.draw.between(*FIRST_PHASE_S)


class _Contended(_Builder):
    """Pressure as in the papers: a loaded NIC, programs that need the LLC, programs and storage that stream through it."""

    def fill(self) -> None:
        """All workloads; at least one uses a device, and at least one of each priority."""
        kinds: list[tuple[Callable[[], None], float]] = []
        if self.draw.chance(0.8):
            kinds.append((self._network, 0.8))
        kinds += [(self._sensitive, 0.8), (self._streaming, 0.2)]
        # Drawn in any case: one draw per decision.
        if not self.draw.chance(0.3) or kinds[0][0] != self._network:
            kinds.append((self._storage, 0.2))
        while len(kinds) < self.wanted:
            roll = self.draw.part(0, 1)
            if roll < 0.15 and sum(kind == self._network for kind, _ in kinds) < 2:
                kinds.append((self._network, 0.8))
            elif roll < 0.25 and sum(kind == self._storage for kind, _ in kinds) < 2:
                kinds.append((self._storage, 0.2))
            elif roll < 0.65:
                kinds.append((self._sensitive, 0.8))
            else:
                kinds.append((self._streaming, 0.2))
        kinds = kinds[: self.wanted]
        for position, (kind, high) in enumerate(kinds):
            # Every later workload needs a core.
            self.free_now = self.free - (len(kinds) - position - 1)
            kind()
            self.workloads[-1]["priority"] = "high" if self.draw.chance(high) else "low"
        if len({workload["priority"] for workload in self.workloads}) == 1:
            last = self.workloads[-1]
            last["priority"] = "low" if last["priority"] == "high" else "high"
        self._come_and_go()

    def _network(self) -> None:
        program = self.draw.one(tuple(PACKET_NS))
        count = min(self.draw.between(2, 4), self.free_now)
        packet = self.draw.one((512, 1024, 1514))
        base_ns, line_ns = PACKET_NS[program]
        gbps = count * (packet + 20) * 8 / (base_ns + line_ns * math.ceil(packet / 64))
        imbalance = self.draw.one((1, 1.1, 1.2))
        full = round(min(gbps * self.draw.part(*FULL_LOAD) / imbalance, 95.0), 1)
        nic: dict[str, Any] = {
            "name": f"nic{len(self.nics)}",
            "gbps": 100,
            "offered_gbps": full,
            "packet_bytes": packet,
            "flows": 1024,
            "imbalance": min(imbalance, count),
            "ring": self.draw.one((1024, 2048, 4096)),
        }
        if self.draw.chance(0.4):
            nic.update(arrivals="exponential", train=self.draw.one((8, 32)))
        if self.draw.chance(0.3):
            # From light to full load, or the reverse.
            light = round(full * self.draw.part(0.2, 0.6), 1)
            rises = self.draw.chance(0.5)
            nic["offered_gbps"] = light if rises else full
            nic["phase"] = [{"at_s": self.draw.between(*FIRST_PHASE_S), "offered_gbps": full if rises else light}]
        self.nics.append(nic)
        self._add(program, program, count, nic=nic["name"])

    def _storage(self) -> None:
        program = self.draw.one(("fio", "ffsb-heavy"))
        array = {"name": f"raid{len(self.storage)}", "drives": self.draw.between(2, 4)}
        self.storage.append(array)
        keys: dict[str, Any] = {"storage": array["name"]}
        if program == "fio":
            keys["block"] = self.draw.one(("128 KiB", "512 KiB", "2 MiB"))
        self._add(program, program, min(self.draw.between(1, 3), self.free_now), **keys)

    def _sensitive(self) -> None:
        # Several copies where the chip is large, so that together they need most of the LLC.
        count = min(self.draw.between(1, 3 if self.llc_mib > 30 else 2), self.free_now)
        if self.draw.chance(0.4):
            size = max(1, round(self.llc_mib * self.draw.part(0.15, 0.5) / count))
            self._add("x-mem", "x-mem", count, working_set=f"{size} MiB", pattern="random")
        else:
            benchmark = self.draw.one(SENSITIVE)
            self._add(benchmark, "spec", count, benchmark=benchmark)

    def _streaming(self) -> None:
        count = min(self.draw.between(1, 2), self.free_now)
        if self.draw.chance(0.4):
            size, grown = round(self.llc_mib * 0.1), round(self.llc_mib * 2)
            keys: dict[str, Any] = {"working_set": f"{grown} MiB", "pattern": self.draw.one(("random", "sequential"))}
            if self.draw.chance(0.3):
                keys["working_set"] = f"{size} MiB"
                keys["phase"] = [{"at_s": self.draw.between(*FIRST_PHASE_S), "working_set": f"{grown} MiB"}]
            self._add("x-mem", "x-mem", count, **keys)
        else:
            benchmark = self.draw.one(STREAMING)
            self._add(benchmark, "spec", count, benchmark=benchmark)


def write(folder: Path, seed: int, count: int) -> list[Path]:
    """Writes and checks `count` mixes; returns their files. Raises `BadInput` if one is not accepted."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for index in range(count):
        text = mix(seed, index)
        file = folder / f"mix-{seed}-{index:02}.toml"
        Scenario.parse(text, str(file)).check()
        outputs.write(file, text)
        files.append(file)
    return files


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser("python -m waykeeper.mixes", description="Write generated scenarios.")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the generator [1]")
    parser.add_argument("--count", type=int, default=40, metavar="N", help="number of scenarios [40]")
    parser.add_argument("--out", default="mixes", metavar="DIR", help="folder [mixes]")
    options = parser.parse_args(words)
    try:
        if not 1 <= options.count <= 1000:
            raise BadInput(f"--count is {options.count}; it must be from 1 to 1000")
        files = write(Path(options.out), options.seed, options.count)
    except (BadInput, OSError) as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    print(f"wrote {len(files)} scenarios into {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
