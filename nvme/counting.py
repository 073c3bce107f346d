"""Does a run move exactly what it says? Judged by QEMU's counts and its trace of the device, and by the image's content.

It knows where counts come from and how they must agree. It must not know which runs there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from guests.qmp import Counts
from nvme import content, placing
from nvme.load import Load, Report, line, report
from nvme.machine import UNIT_BYTES, Device, Machine
from nvme.placing import Sent
from nvme.trace import Command


@dataclass(frozen=True)
class Judged:
    """What came of one run: nothing wrong, or these sentences."""

    name: str
    wrong: list[str]


def run(machine: Machine, device: Device, target: str, load: Load) -> Judged:
    """Runs a load on one of the device's nodes and judges it."""
    before = machine.counts(device)
    with machine.traced(device) as commands:
        told = report(machine.session.run(line(load.words(target, device.serial))))
    counts = machine.counts(device) - before
    changed = content.changed(device.image, load.block_bytes)
    content.restore(device.image, changed, load.block_bytes)
    wrong = by_summary(load, told) + by_counts(load, counts) + by_commands(load, device, commands, changed)
    if changed and (load.op == "write" or not load.moved()):
        wrong.append(f"{len(changed)} blocks of the image changed, and the run was none that writes")
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


def by_commands(load: Load, device: Device, commands: list[Command], changed: dict[int, bytes]) -> list[str]:
    """Where commands went and came from: on the device, in the image, in memory."""
    if not load.moved():
        return [f"{len(commands)} commands with data: {commands[:5]}"] if commands else []
    if other := [one for one in commands if one.writes != (load.op == "read")]:
        return [f"{len(other)} commands went the other way: {other[:5]}"]
    each = load.block_bytes // device.block_bytes
    if broken := [one for one in commands if one.lba % each or one.blocks % each]:
        return [f"{len(broken)} commands are of no whole blocks of {load.block_bytes} B: {broken[:5]}"]
    sent = [Sent(one.lba // each, one.blocks // each) for one in commands]
    if wrong := placing.by_places(load, sent, device.image.stat().st_size // load.block_bytes):
        return wrong
    if load.op == "read":
        buffer = content.buffer(load.seed, load.buffer_blocks, load.block_bytes)
        wrong = placing.by_image(load, sent, {place: buffer.get(block) for place, block in changed.items()})
    addresses = [one.addresses(load.block_bytes) for one in commands]
    if short := sum(found is None or len(found) != one.blocks for found, one in zip(addresses, sent, strict=True)):
        return [*wrong, f"the memory of {short} commands is not as many whole blocks as they move"]
    return wrong + placing.by_addresses(load, addresses)
