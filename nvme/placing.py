"""Checks that each command transferred the blocks that its pattern defines, by the places in QEMU's trace, the content of the image,
and the memory addresses of the commands.

This module implements the order of each pattern and takes into account that later commands may overwrite earlier ones. It must not
depend on how these data were collected.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from nvme import chance
from nvme.load import Load

SHOWN = 5
"""Number of examples shown per error."""


@dataclass(frozen=True)
class Sent:
    """A command in the device's trace, in blocks of the load."""

    place: int
    blocks: int


def by_places(load: Load, sent: list[Sent], device_blocks: int) -> list[str]:
    """Checks that commands have the lengths of the pattern, that reads begin at the device's start, and that writes begin
    anywhere with equal probability.
    """
    lengths, wanted = Counter(one.blocks for one in sent), Counter(load.lengths())
    if lengths != wanted:
        return [f"commands by length in blocks (length: number): {dict(lengths)}, expected {dict(wanted)}"]
    if load.op == "write":
        elsewhere = [one for one in sent if one.place != 0]
        return [f"{len(elsewhere)} reads did not begin at block 0: {elsewhere[:SHOWN]}"] if elsewhere else []
    wrong = []
    for length in lengths:
        places = [one.place for one in sent if one.blocks == length]
        if why := chance.uneven(places, device_blocks - length + 1):
            wrong.append(f"places of commands of {length} blocks: {why}")
    return wrong


def by_image(load: Load, sent: list[Sent], found: dict[int, int | None]) -> list[str]:
    """Checks the image after writes: `found` has the changed blocks and the block of the buffer that each contains (None: none).

    A block that only one command wrote shows where in the buffer that command began; a block that several commands wrote must be
    from one of them. A command that others have overwritten completely is right if the others are.
    """
    covering: dict[int, list[int]] = {}
    for number, one in enumerate(sent):
        for place in range(one.place, one.place + one.blocks):
            covering.setdefault(place, []).append(number)
    wrong = []
    strange = [place for place, block in found.items() if block is None]
    if strange:
        wrong.append(f"{len(strange)} blocks have content that was never in the buffer: {strange[:SHOWN]}")
    if beside := sorted(found.keys() - covering.keys()):
        wrong.append(f"{len(beside)} blocks changed that no command wrote: {beside[:SHOWN]}")
    if lost := sorted(covering.keys() - found.keys()):
        wrong.append(f"{len(lost)} blocks that were written have their old content: {lost[:SHOWN]}")
    if wrong:
        return wrong
    starts: dict[int, set[int]] = {}
    for place, numbers in covering.items():
        if len(numbers) == 1:
            starts.setdefault(numbers[0], set()).add(found[place] - (place - sent[numbers[0]].place))
    if torn := [number for number, seen in starts.items() if len(seen) > 1]:
        return [f"the blocks of {len(torn)} commands are not contiguous in the buffer: numbers {torn[:SHOWN]}"]
    known = {number: min(seen) for number, seen in starts.items()}
    wrong += by_starts(load, {number: (known[number], sent[number].blocks) for number in known})
    if wrong:
        return wrong
    targets = load.targets()
    hidden = Counter(targets or []) - Counter((known[number], sent[number].blocks) for number in known)
    for place, numbers in covering.items():
        could = False
        for number in numbers:
            start = found[place] - (place - sent[number].place)
            if number in known:
                could |= known[number] == start
            elif targets is None:
                could |= 0 <= start < load.starts()
            else:
                could |= hidden[start, sent[number].blocks] > 0
        if not could:
            wrong.append(f"block {place} has block {found[place]} of the buffer, which none of its writers had")
    return wrong[:SHOWN]


def by_starts(load: Load, known: dict[int, tuple[int, int]]) -> list[str]:
    """Checks the commands whose place in the buffer is known: number in order -> first block and length."""
    targets = load.targets()
    if targets is None:
        why = chance.uneven([start for start, _ in known.values()], load.starts())
        return [f"starts of commands in the buffer: {why}"] if why else []
    if load.depth * load.workers == 1:
        other = [
            f"command {number} transferred {known[number]}, expected {targets[number]}"
            for number in sorted(known)
            if known[number] != targets[number]
        ]
        return other[:SHOWN]
    more = Counter(known.values()) - Counter(targets)
    if more:
        pieces = ", ".join(
            f"{length} from {start} on: {times}" for (start, length), times in list(more.items())[:SHOWN]
        )
        return [f"pieces of the buffer were transferred more often than in the pattern ({pieces} times more)"]
    return []


def by_addresses(load: Load, addresses: list[list[int]]) -> list[str]:
    """Checks the address of each block of each command: a block of the buffer has one address, and neighbours in a command are
    neighbours in the buffer.
    """
    after: dict[int, int] = {}
    for one in addresses:
        for first, second in zip(one, one[1:], strict=False):
            if after.setdefault(first, second) != second:
                return [f"address {first:#x} is followed by {after[first]:#x} and by {second:#x}"]
    if len(set(after.values())) != len(after):
        return ["two blocks are followed by the same block"]
    targets = load.targets()
    if targets is not None:
        times = Counter(address for one in addresses for address in one)
        wanted = Counter(start + at for start, length in targets for at in range(length))
        if sorted(times.values()) != sorted(wanted.values()):
            return [
                f"{len(times)} addresses were used {_often(times)} times, expected {len(wanted)} and {_often(wanted)} times"
            ]
        return _in_order(targets, addresses) if load.depth * load.workers == 1 else []
    # All pieces of memory are connected if they belong to one buffer of which nearly all blocks were used.
    begins = sorted(after.keys() - set(after.values()))
    position: dict[int, int] = {}
    if len(begins) == 1:
        at: int | None = begins[0]
        while at is not None:
            position[at] = len(position)
            at = after.get(at)
    if len(position) != len(after) + 1 or len(position) > load.buffer_blocks:
        return [f"{len(after)} pairs of neighbouring addresses do not form one buffer of {load.buffer_blocks} blocks"]
    # The number of blocks before the first used one is not known.
    shifts = range(load.buffer_blocks - len(position) + 1)
    starts = [position[one[0]] for one in addresses]
    why = [chance.uneven([start + shift for start in starts], load.starts()) for shift in shifts]
    return [] if not all(why) else [f"starts of commands in memory: {why[0]}"]


def _in_order(targets: list[tuple[int, int]], addresses: list[list[int]]) -> list[str]:
    """If commands are sent one after the other, the block of each address is known."""
    known: dict[int, int] = {}
    for (start, _), one in zip(targets, addresses, strict=True):
        for block, address in enumerate(one, start):
            if known.setdefault(block, address) != address:
                return [f"block {block} of the buffer was at address {known[block]:#x} and at {address:#x}"]
    return []


def _often(times: Counter[int]) -> str:
    """The counts in ascending order, as text."""
    return " or ".join(str(number) for number in sorted(set(times.values())))
