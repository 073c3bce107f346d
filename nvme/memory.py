"""Checks the data that the device has written to memory, by reading the buffer of a paused run from outside.

This module uses Linux's page map of a process and QEMU's dump of memory. It must not depend on the output of the tested program.
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
"""Bits of an entry of /proc/PID/pagemap: the page is in memory, and its frame number (Linux, admin-guide/mm/pagemap.rst)."""

A_SECOND = 12
"""Commands that a run sends at the start of each second. The run is paused in the first second; four seconds of `full` fit into its
buffer."""

LOADS = [
    Load(pattern, "write", engine, buffer_blocks=1531, stride=3 if pattern == "packets" else 1)
    for engine, patterns in (
        ("nvme-uring", ("single", "random", "full", "packets")),
        ("nvme-ioctl", ("random", "packets")),
        ("uring", ("random", "packets")),
    )
    for pattern in patterns
]
"""The checked runs. They send one command after the other, so that the content of each block of memory is known."""


def arrives(machine: Machine, device: Device, target: str, load: Load, folder: Path) -> Judged:
    """Pauses a run after some commands: blocks of the buffer that commands have used must have the device's first blocks, all
    others their initial content.
    """
    words = load.words(target, None)
    at = words.index("--commands")
    words[at : at + 2] = ["--time", "600", "--limit-commands", str(A_SECOND)]
    before = machine.counts(device).read_operations
    with machine.traced(device):
        process = machine.session.start("arrives", shlex.join(words))
        wrong = until_read(machine, device, before + A_SECOND)
        with paused(machine, process):
            # Commands in flight at the pause have completed when QEMU has counted them.
            commands = machine.trace.commands(device.nsid)
            wrong += until_read(machine, device, before + len(commands))
            mappings = [pages for pages in anonymous(machine, process) if len(pages) >= load.buffer_blocks]
            held = [(pages, hold(machine, pages, folder / "memory")) for pages in mappings]
            machine.session.check(f"kill -INT {process} || true")
    ended = machine.session.finish("arrives")
    if ended.status != 130:
        wrong.append(f"expected status 130: {ended}")
    ran = dataclasses.replace(load, commands=len(commands))
    sent = [
        Sent(one.lba * device.block_bytes // PAGE_BYTES, one.blocks * device.block_bytes // PAGE_BYTES)
        for one in commands
    ]
    wrong = wrong or placing.by_places(ran, sent, 0) or judge(ran, commands, held)
    return Judged(f"{load.engine} {load.pattern}: memory has the device's data", wrong)


def until_read(machine: Machine, device: Device, operations: int) -> list[str]:
    """Waits until the device has counted this number of reads."""
    until = time.monotonic() + MOST_SECONDS
    while machine.counts(device).read_operations < operations:
        if time.monotonic() > until:
            return [f"the run has not started after {MOST_SECONDS:.0f} s"]
        time.sleep(0.02)
    return []


@contextlib.contextmanager
def paused(machine: Machine, process: int) -> Iterator[None]:
    """The process is stopped (SIGSTOP) in the context."""
    machine.session.check(
        f"kill -STOP {process}; until grep -q '^State:.*T' /proc/{process}/status; do sleep 0.02; done"
    )
    try:
        yield
    finally:
        machine.session.check(f"kill -CONT {process}")


def anonymous(machine: Machine, process: int) -> list[list[int]]:
    """The private mappings of a process: for each the addresses of its pages in the guest's memory, 0 for a page that is not present."""
    found = []
    for line in machine.session.check(f"cat /proc/{process}/maps").splitlines():
        fields = line.split()
        if len(fields) > 5 or not fields[1].startswith("rw-p"):
            continue
        start, end = (int(text, 16) // PAGE_BYTES for text in fields[0].split("-"))
        # Thread stacks and reserves of the allocator are larger and mostly not present.
        if end - start > 4096:
            continue
        dump = f"dd if=/proc/{process}/pagemap bs=8 skip={start} count={end - start} 2>/dev/null | od -An -v -tx8"
        entries = [int(text, 16) for text in machine.session.check(dump).split()]
        found.append([(entry & FRAME) * PAGE_BYTES if entry & IS_THERE else 0 for entry in entries])
    return found


def hold(machine: Machine, pages: list[int], copy: Path) -> list[bytes]:
    """The content of these pages of the guest's memory."""
    held: list[bytes] = []
    # Neighbouring pages are read together: address minus position in the list is the same for them.
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
    """Compares commands and memory: `held` has the page addresses and the page contents of each mapping."""
    original = content.buffer(load.seed, load.buffer_blocks, PAGE_BYTES)
    for pages, blocks in held:
        begins = {at - original[block] for at, block in enumerate(blocks) if block in original}
        if not begins:
            continue
        begin = min(begins)
        if len(begins) > 1 or begin < 0 or begin + load.buffer_blocks > len(pages):
            return [f"by its initial content the buffer would begin at pages {sorted(begins)[: placing.SHOWN]}"]
        area = slice(begin, begin + load.buffer_blocks)
        return _agree(load, commands, pages[area], blocks[area])
    return ["no mapping has the initial content of the buffer"]


def _agree(load: Load, commands: list[Command], pages: list[int], blocks: list[bytes]) -> list[str]:
    """The same for the pages of the buffer, in order."""
    numbers = {page: number for number, page in enumerate(pages)}
    wanted: list[int | None] = [None] * len(pages)
    known = {}
    for number, command in enumerate(commands):
        addresses = command.addresses(PAGE_BYTES) or []
        strange = [address for address in addresses if address not in numbers]
        if strange or not addresses:
            return [f"command {number} has memory outside of the buffer: {[hex(one) for one in strange]}"]
        places = [numbers[address] for address in addresses]
        if places != list(range(places[0], places[0] + len(places))):
            return [f"command {number} has blocks of the buffer in this order: {places}"]
        known[number] = (places[0], len(places))
        for at, place in enumerate(places):
            wanted[place] = at
    if wrong := placing.by_starts(load, known):
        return wrong
    original = {number: block for block, number in content.buffer(load.seed, load.buffer_blocks, PAGE_BYTES).items()}
    other = [
        f"block {number} of the buffer does not have "
        + ("its initial content" if at is None else f"block {at} of the device")
        for number, (at, block) in enumerate(zip(wanted, blocks, strict=True))
        if block != (original[number] if at is None else content.known(at * PAGE_BYTES, PAGE_BYTES))
    ]
    return other[: placing.SHOWN]
