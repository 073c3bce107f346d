"""Does a run move exactly what it says? Judged by QEMU's counts, the device's own log, and the image's content.

It knows where counts come from and how they must agree. It must not know which runs there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from guests.qmp import Counts
from nvme import content
from nvme.load import Load, Report, line, report
from nvme.machine import UNIT_BYTES, Device, Machine

MOST_OVERLAP = 0.3
"""Of the blocks that a run writes to random places, so many may be hit twice. A guess: our runs write a tenth of the image or
less, of which one in twenty is hit twice."""


@dataclass(frozen=True)
class Judged:
    """What came of one run: nothing wrong, or these sentences."""

    name: str
    wrong: list[str]


def run(machine: Machine, device: Device, target: str, load: Load) -> Judged:
    """Runs a load on one of the device's nodes and judges it."""
    before = machine.counts(device)
    told = report(machine.session.run(line(load.words(target, device.serial))))
    counts = machine.counts(device) - before
    wrong = by_summary(load, told) + by_counts(load, counts)
    if load.op == "read" and load.moved():
        changed = content.changed(device.image, load.block_bytes)
        wrong += by_content(load, changed)
        content.restore(device.image, changed, load.block_bytes)
    elif content.changed(device.image, load.block_bytes):
        wrong.append("the image changed, and the run was none that writes")
    return Judged(f"{load.name} on {target}", wrong)


def by_summary(load: Load, told: Report) -> list[str]:
    """Status and summary are those of a run without trouble that did what was asked."""
    if told.status != 0 or told.summary is None:
        return [f"a good end was expected: {told}"]
    wanted = {
        "engine": load.engine,
        "pattern": load.pattern,
        "op": load.op,
        "block_bytes": load.block_bytes,
        "commands": load.sent(),
        "blocks": load.counted(),
        "blocks_moved": load.moved(),
        "errors": 0,
    }
    return [
        f"the summary's {key} is {told.summary.get(key)!r}, expected {value!r}"
        for key, value in wanted.items()
        if told.summary.get(key) != value
    ]


def by_counts(load: Load, counts: Counts) -> list[str]:
    """QEMU saw these commands and bytes, and nothing else."""
    commands, data = load.sent(), load.moved() * load.block_bytes
    if not data:
        wanted = Counts(0, 0, 0, 0, commands)
    elif load.op == "write":
        wanted = Counts(commands, data, 0, 0, 0)
    else:
        wanted = Counts(0, 0, commands, data, 0)
    return [] if counts == wanted else [f"QEMU counted {counts}, expected {wanted}"]


def by_log(machine: Machine, device: Device) -> list[str]:
    """The device's own log of its life says the same as QEMU: commands exactly, data in units, rounded up."""
    smart, counts = machine.smart(device), machine.counts(device)
    pairs = [
        ("host read commands", smart.read_commands, counts.read_operations),
        ("host write commands", smart.written_commands, counts.written_operations),
        ("data units read", smart.read_units, math.ceil(counts.read_bytes / UNIT_BYTES)),
        ("data units written", smart.written_units, math.ceil(counts.written_bytes / UNIT_BYTES)),
    ]
    return [
        f"{device.serial}: the SMART log says {said} {name}, expected {wanted}"
        for name, said, wanted in pairs
        if said != wanted
    ]


def by_content(load: Load, changed: dict[int, bytes]) -> list[str]:
    """What was written is the buffer's: whole blocks of it, in the pieces that the pattern makes."""
    wrong = []
    buffer = content.buffer(load.seed, load.buffer_blocks, load.block_bytes)
    found = {place: buffer.get(block) for place, block in changed.items()}
    strange = [place for place, number in found.items() if number is None]
    if strange:
        wrong.append(f"blocks {strange[:5]} of the image, {len(strange)} in all, hold what never was in the buffer")
    moved = load.moved()
    if not (1 - MOST_OVERLAP) * moved <= len(found) <= moved:
        wrong.append(f"{len(found)} blocks of the image changed, {moved} were written")
    # A piece ends where the next block of the image does not hold the next one of the buffer. A command makes one piece; one
    # that overwrites a part of another's makes one more of it at most.
    pieces = sum(
        number is not None and (place == 0 or found.get(place - 1) is None or found[place - 1] != number - 1)
        for place, number in found.items()
    )
    if pieces > 2 * load.commands:
        wrong.append(f"what was written lies in {pieces} pieces, {load.commands} commands make 2 each at most")
    if load.pattern == "packets":
        between = [number for number in found.values() if number is not None and number % load.stride]
        if between:
            wrong.append(f"blocks {between[:5]} of the buffer are no slots of {load.stride} blocks")
    return wrong
