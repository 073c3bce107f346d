"""What does the device leave in memory? Looks from outside at the whole buffer of a run that stands still.

It knows how Linux says where a process's memory lies, and QEMU's copy of memory. It must not know what the program under test says of
itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from nvme import content, placing
from nvme.counting import Judged
from nvme.load import Load
from nvme.machine import Device, Machine
from nvme.manners import MOST_SECONDS
from nvme.placing import Sent
from nvme.trace import Command

PAGE_BYTES = 4096

IS_THERE, FRAME = 1 << 63, (1 << 55) - 1
"""Of an entry of /proc/PID/pagemap: the page is in memory, and its number there (Linux, admin-guide/mm/pagemap.rst)."""

A_SECOND = 12
"""Commands that a run sends at the start of each second; it is stopped in the first, and four seconds of `full` fit into its buffer."""

LOADS = [
    Load(pattern, "write", engine, buffer_blocks=1531, stride=3 if pattern == "packets" else 1)
    for engine, patterns in (
        ("nvme-uring", ("single", "random", "full", "packets")),
        ("nvme-ioctl", ("random", "packets")),
        ("uring", ("random", "packets")),
    )
    for pattern in patterns
]
"""Runs that are looked at. One command goes after the other, so that what lies in memory is known block by block."""


def arrives(machine: Machine, device: Device, target: str, load: Load, folder: Path) -> Judged:
    """A run is stopped after some commands: its buffer holds the device's first blocks where commands have been, and elsewhere what it
    was filled with.
    """
    words = load.words(target, None)
    at = words.index("--commands")
    words[at : at + 2] = ["--time", "600", "--limit-commands", str(A_SECOND)]
    before = machine.counts(device).read_operations
    with machine.traced(device):
        process = machine.session.start("arrives", shlex.join(words))
        wrong = until_read(machine, device, before + A_SECOND)
        with standing(machine, process):
            # What was on its way when it was stopped has arrived when it has been counted.
            commands = machine.trace.commands(device.nsid)
            wrong += until_read(machine, device, before + len(commands))
            mappings = [pages for pages in anonymous(machine, process) if len(pages) >= load.buffer_blocks]
            held = [(pages, hold(machine, pages, folder / "memory")) for pages in mappings]
            machine.session.check(f"kill -INT {process} || true")
    ended = machine.session.finish("arrives")
    if ended.status != 130:
        wrong.append(f"status 130 was expected: {ended}")
    ran = dataclasses.replace(load, commands=len(commands))
    sent = [
        Sent(one.lba * device.block_bytes // PAGE_BYTES, one.blocks * device.block_bytes // PAGE_BYTES)
        for one in commands
    ]
    wrong = wrong or placing.by_places(ran, sent, 0) or judge(ran, commands, held)
    return Judged(f"{load.engine} {load.pattern}: memory holds what the device held", wrong)


def until_read(machine: Machine, device: Device, operations: int) -> list[str]:
    """Waits until the device has counted so many reads."""
    until = time.monotonic() + MOST_SECONDS
    while machine.counts(device).read_operations < operations:
        if time.monotonic() > until:
            return [f"not under way after {MOST_SECONDS:.0f} s"]
        time.sleep(0.02)
    return []


@contextlib.contextmanager
def standing(machine: Machine, process: int) -> Iterator[None]:
    """The process is stopped meanwhile."""
    machine.session.check(
        f"kill -STOP {process}; until grep -q '^State:.*T' /proc/{process}/status; do sleep 0.02; done"
    )
    try:
        yield
    finally:
        machine.session.check(f"kill -CONT {process}")


def anonymous(machine: Machine, process: int) -> list[list[int]]:
    """The mappings of a process's own memory: of each the addresses of its pages in the guest's memory, 0 for what is not there."""
    found = []
    for line in machine.session.check(f"cat /proc/{process}/maps").splitlines():
        fields = line.split()
        if len(fields) > 5 or not fields[1].startswith("rw-p"):
            continue
        start, end = (int(text, 16) // PAGE_BYTES for text in fields[0].split("-"))
        # Stacks of threads and the allocator's reserve are larger, and hardly any of them is there.
        if end - start > 4096:
            continue
        dump = f"dd if=/proc/{process}/pagemap bs=8 skip={start} count={end - start} 2>/dev/null | od -An -v -tx8"
        entries = [int(text, 16) for text in machine.session.check(dump).split()]
        found.append([(entry & FRAME) * PAGE_BYTES if entry & IS_THERE else 0 for entry in entries])
    return found


def hold(machine: Machine, pages: list[int], copy: Path) -> list[bytes]:
    """What lies in these pages of the guest's memory."""
    held: list[bytes] = []
    # Neighbours are fetched together: an address less its place in the list is the same for them.
    for _, group in itertools.groupby(
        enumerate(pages), lambda one: one[1] - one[0] * PAGE_BYTES if one[1] else -one[0]
    ):
        run = [page for _, page in group]
        if run[0]:
            machine.qmp.execute("pmemsave", val=run[0], size=len(run) * PAGE_BYTES, filename=str(copy))
            data = copy.read_bytes()
            held += [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]
        else:
            held += [b""] * len(run)
    copy.unlink(missing_ok=True)
    return held


def judge(load: Load, commands: list[Command], held: list[tuple[list[int], list[bytes]]]) -> list[str]:
    """Commands and memory agree: `held` are mappings, the addresses of their pages and what these hold."""
    original = content.buffer(load.seed, load.buffer_blocks, PAGE_BYTES)
    for pages, blocks in held:
        begins = {at - original[block] for at, block in enumerate(blocks) if block in original}
        if not begins:
            continue
        begin = min(begins)
        if len(begins) > 1 or begin < 0 or begin + load.buffer_blocks > len(pages):
            return [f"the buffer would begin at pages {sorted(begins)[: placing.SHOWN]} by what it was filled with"]
        area = slice(begin, begin + load.buffer_blocks)
        return _agree(load, commands, pages[area], blocks[area])
    return ["no memory holds what the buffer was filled with"]


def _agree(load: Load, commands: list[Command], pages: list[int], blocks: list[bytes]) -> list[str]:
    """The same for the buffer's pages in order."""
    numbers = {page: number for number, page in enumerate(pages)}
    wanted: list[int | None] = [None] * len(pages)
    known = {}
    for number, command in enumerate(commands):
        addresses = command.addresses(PAGE_BYTES) or []
        strange = [address for address in addresses if address not in numbers]
        if strange or not addresses:
            return [f"command {number} named memory that is not the buffer's: {[hex(one) for one in strange]}"]
        places = [numbers[address] for address in addresses]
        if places != list(range(places[0], places[0] + len(places))):
            return [f"command {number} named blocks of the buffer in this order: {places}"]
        known[number] = (places[0], len(places))
        for at, place in enumerate(places):
            wanted[place] = at
    if wrong := placing.by_starts(load, known):
        return wrong
    original = {number: block for block, number in content.buffer(load.seed, load.buffer_blocks, PAGE_BYTES).items()}
    other = [
        f"block {number} of the buffer does not hold "
        + ("what it was filled with" if at is None else f"block {at} of the device")
        for number, (at, block) in enumerate(zip(wanted, blocks, strict=True))
        if block != (original[number] if at is None else content.known(at * PAGE_BYTES, PAGE_BYTES))
    ]
    return other[: placing.SHOWN]
