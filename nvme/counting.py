"""Checks that a run transfers exactly what its summary states, by QEMU's counters, QEMU's trace and the content of the image.

This module collects these sources and compares them. It must not depend on the list of runs.
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
    """The result of one check: `wrong` lists the errors."""

    name: str
    wrong: list[str]


def run(machine: Machine, device: Device, target: str, load: Load) -> Judged:
    """Runs a load on one of the device's nodes and checks it."""
    before = machine.counts(device)
    with machine.traced(device) as commands:
        ended = report(machine.session.run(line(load.words(target, device.serial))))
    counts = machine.counts(device) - before
    changed = content.changed(device.image, load.block_bytes)
    content.restore(device.image, changed, load.block_bytes)
    wrong = by_summary(load, ended) + by_counts(load, counts) + by_commands(load, device, commands, changed)
    if changed and (load.op == "write" or not load.moved()):
        wrong.append(f"{len(changed)} blocks of the image changed in a run that does not write the device")
    return Judged(f"{load.name} on {target}", wrong)


def by_summary(load: Load, ended: Report) -> list[str]:
    """Checks that the status is 0 and the summary states the requested run."""
    if ended.status != 0 or ended.summary is None:
        return [f"expected status 0 and a summary: {ended}"]
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
        f"the summary's {key} is {ended.summary.get(key)!r}, expected {value!r}"
        for key, value in wanted.items()
        if ended.summary.get(key) != value
    ]


def by_counts(load: Load, counts: Counts) -> list[str]:
    """Checks that QEMU counted exactly these commands and bytes."""
    commands, data = load.sent(), load.moved() * load.block_bytes
    if not data:
        wanted = Counts(0, 0, 0, 0, commands)
    elif load.op == "write":
        wanted = Counts(commands, data, 0, 0, 0)
    else:
        wanted = Counts(0, 0, commands, data, 0)
    return [] if counts == wanted else [f"QEMU counted {counts}, expected {wanted}"]


def by_log(machine: Machine, device: Device) -> list[str]:
    """Checks that the device's SMART log agrees with QEMU: commands exactly, data in units, rounded up."""
    smart, counts = machine.smart(device), machine.counts(device)
    pairs = [
        ("host read commands", smart.read_commands, counts.read_operations),
        ("host write commands", smart.written_commands, counts.written_operations),
        ("data units read", smart.read_units, math.ceil(counts.read_bytes / UNIT_BYTES)),
        ("data units written", smart.written_units, math.ceil(counts.written_bytes / UNIT_BYTES)),
    ]
    return [
        f"{device.serial}: {name} in the SMART log: {said}, expected {wanted}"
        for name, said, wanted in pairs
        if said != wanted
    ]


def by_commands(load: Load, device: Device, commands: list[Command], changed: dict[int, bytes]) -> list[str]:
    """Checks the places of the commands: on the device, in the image, in memory."""
    if not load.moved():
        return [f"{len(commands)} commands with data: {commands[:5]}"] if commands else []
    if other := [one for one in commands if one.writes != (load.op == "read")]:
        return [f"{len(other)} commands have the wrong direction: {other[:5]}"]
    each = load.block_bytes // device.block_bytes
    if broken := [one for one in commands if one.lba % each or one.blocks % each]:
        return [f"{len(broken)} commands do not have whole blocks of {load.block_bytes} B: {broken[:5]}"]
    sent = [Sent(one.lba // each, one.blocks // each) for one in commands]
    if wrong := placing.by_places(load, sent, device.image.stat().st_size // load.block_bytes):
        return wrong
    if load.op == "read":
        buffer = content.buffer(load.seed, load.buffer_blocks, load.block_bytes)
        wrong = placing.by_image(load, sent, {place: buffer.get(block) for place, block in changed.items()})
    addresses = [one.addresses(load.block_bytes) for one in commands]
    if short := sum(found is None or len(found) != one.blocks for found, one in zip(addresses, sent, strict=True)):
        return [*wrong, f"the memory of {short} commands is not the same number of whole blocks as they transfer"]
    return wrong + placing.by_addresses(load, addresses)
