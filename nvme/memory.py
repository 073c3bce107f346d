"""Did the device really write memory? Looks for its blocks in a copy of the guest's memory while a run stands still.

It knows pages and QEMU's copy. It must not know what the program under test says of itself.
"""

from __future__ import annotations

import mmap
import shlex
import time
from pathlib import Path

from nvme import content
from nvme.counting import Judged
from nvme.load import Load
from nvme.machine import Device, Machine
from nvme.manners import MOST_SECONDS

PAGE_BYTES = 4096


def arrives(machine: Machine, device: Device, target: str, engine: str, folder: Path) -> Judged:
    """A run of whole pages fills its buffer twice over with the device's first blocks: as many pages of the guest's memory
    more must hold them than before the run.
    """
    load = Load("full", "write", engine, buffer_blocks=62, most_blocks=32, depth=4)
    words = load.words(target, None)
    at = words.index("--commands")
    words[at : at + 2] = ["--time", "600"]
    before = pages(machine, folder)
    counted = machine.counts(device)
    process = machine.session.start("arrives", shlex.join(words))
    wrong = []
    until = time.monotonic() + MOST_SECONDS
    while (machine.counts(device) - counted).read_operations < 20:
        if time.monotonic() > until:
            wrong.append(f"not under way after {MOST_SECONDS:.0f} s")
            break
        time.sleep(0.02)
    machine.session.check(
        f"kill -STOP {process}; until grep -q '^State:.*T' /proc/{process}/status; do sleep 0.02; done"
    )
    after = pages(machine, folder)
    machine.session.check(f"kill -INT {process} || true; kill -CONT {process}")
    ended = machine.session.finish("arrives")
    if ended.status != 130:
        wrong.append(f"status 130 was expected: {ended}")
    # 31 blocks at a time from the device's start, to block 0 and to block 31 of the buffer.
    more = {number: after[number] - before[number] for number in after}
    if any(more[number] != 2 for number in range(31)) or any(more[number] for number in more if number >= 31):
        wrong.append(f"2 pages more of each of blocks 0 to 30 were expected in memory, and none of another: {more}")
    return Judged(f"{engine}: memory holds what the device held", wrong)


def pages(machine: Machine, folder: Path, blocks: int = 64) -> dict[int, int]:
    """How many pages of the guest's memory hold each of the first blocks of an image, by number."""
    copy = folder / "memory"
    copy.unlink(missing_ok=True)
    size = machine.qmp.execute("query-memory-size-summary")["base-memory"]
    machine.qmp.execute("pmemsave", val=0, size=size, filename=str(copy))
    wanted = {content.known(number * PAGE_BYTES, PAGE_BYTES): number for number in range(blocks)}
    heads = {page[:8] for page in wanted}
    found = dict.fromkeys(wanted.values(), 0)
    with open(copy, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory_map:
        # The upper bits of each word are the same everywhere: only pages that begin so are looked at.
        tag = (content.TAG >> 48).to_bytes(2, "little")
        at = memory_map.find(tag)
        while at >= 0:
            start = at - 6
            if start % PAGE_BYTES == 0 and memory_map[start : start + 8] in heads:
                number = wanted.get(memory_map[start : start + PAGE_BYTES])
                if number is not None:
                    found[number] += 1
            at = memory_map.find(tag, at + 1)
    copy.unlink()
    return found
