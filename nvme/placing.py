"""Did each command move the blocks of the buffer that its pattern says? Judged by where QEMU says that commands went, what the image
holds, and which addresses of memory they named.

It knows how patterns go over a buffer, and what may be hidden by what came later. It must not know who looked at it all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from nvme import chance
from nvme.load import Load

SHOWN = 5
"""So many examples are told of what is wrong."""


@dataclass(frozen=True)
class Sent:
    """A command as the device saw it, in blocks of the load."""

    place: int
    blocks: int


def by_places(load: Load, sent: list[Sent], device_blocks: int) -> list[str]:
    """Commands are as long as the pattern makes them; reads come from the device's start, writes go anywhere with equal
    probability.
    """
    lengths, wanted = Counter(one.blocks for one in sent), Counter(load.lengths())
    if lengths != wanted:
        return [f"commands of {dict(lengths)} blocks (length: how many) were seen, expected {dict(wanted)}"]
    if load.op == "write":
        elsewhere = [one for one in sent if one.place != 0]
        return [f"{len(elsewhere)} reads began elsewhere than at block 0: {elsewhere[:SHOWN]}"] if elsewhere else []
    wrong = []
    for length in lengths:
        places = [one.place for one in sent if one.blocks == length]
        if why := chance.uneven(places, device_blocks - length + 1):
            wrong.append(f"places of commands of {length} blocks: {why}")
    return wrong


def by_image(load: Load, sent: list[Sent], found: dict[int, int | None]) -> list[str]:
    """What writes left: `found` are the blocks that changed and which of the buffer's each holds (None: none of them).

    A block that only one command wrote must be there and says where in the buffer that command began; one that several wrote must
    be of one of them. A command that is hidden by others altogether has begun where it should if the others have.
    """
    covering: dict[int, list[int]] = {}
    for number, one in enumerate(sent):
        for place in range(one.place, one.place + one.blocks):
            covering.setdefault(place, []).append(number)
    wrong = []
    strange = [place for place, block in found.items() if block is None]
    if strange:
        wrong.append(f"{len(strange)} blocks hold what never was in the buffer: {strange[:SHOWN]}")
    if beside := sorted(found.keys() - covering.keys()):
        wrong.append(f"{len(beside)} blocks changed that nobody wrote: {beside[:SHOWN]}")
    if lost := sorted(covering.keys() - found.keys()):
        wrong.append(f"{len(lost)} blocks that were written hold what they held before: {lost[:SHOWN]}")
    if wrong:
        return wrong
    starts: dict[int, set[int]] = {}
    for place, numbers in covering.items():
        if len(numbers) == 1:
            starts.setdefault(numbers[0], set()).add(found[place] - (place - sent[numbers[0]].place))
    if torn := [number for number, seen in starts.items() if len(seen) > 1]:
        return [f"the blocks of {len(torn)} commands are not one piece of the buffer: numbers {torn[:SHOWN]}"]
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
            wrong.append(f"block {place} holds block {found[place]} of the buffer, which none of its writers had")
    return wrong[:SHOWN]


def by_starts(load: Load, known: dict[int, tuple[int, int]]) -> list[str]:
    """The commands whose place in the buffer is known, by number in the order in which they came: first block and length."""
    targets = load.targets()
    if targets is None:
        why = chance.uneven([start for start, _ in known.values()], load.starts())
        return [f"where commands begin in the buffer: {why}"] if why else []
    if load.depth * load.workers == 1:
        other = [
            f"command {number} moved {known[number]}, expected {targets[number]}"
            for number in sorted(known)
            if known[number] != targets[number]
        ]
        return other[:SHOWN]
    more = Counter(known.values()) - Counter(targets)
    if more:
        pieces = ", ".join(
            f"{length} from {start} on: {times}" for (start, length), times in list(more.items())[:SHOWN]
        )
        return [f"pieces of the buffer were moved more often than the pattern does ({pieces} times more)"]
    return []


def by_addresses(load: Load, addresses: list[list[int]]) -> list[str]:
    """The address of each block of each command: a block of the buffer has one address, and its neighbour in a command is its
    neighbour in the buffer.
    """
    after: dict[int, int] = {}
    for one in addresses:
        for first, second in zip(one, one[1:], strict=False):
            if after.setdefault(first, second) != second:
                return [f"behind address {first:#x} came {after[first]:#x} and {second:#x}"]
    if len(set(after.values())) != len(after):
        return ["two blocks are followed by the same"]
    targets = load.targets()
    if targets is not None:
        times = Counter(address for one in addresses for address in one)
        wanted = Counter(start + at for start, length in targets for at in range(length))
        if sorted(times.values()) != sorted(wanted.values()):
            return [
                f"{len(times)} addresses were named {_often(times)} times, expected {len(wanted)} and {_often(wanted)} times"
            ]
        return _in_order(targets, addresses) if load.depth * load.workers == 1 else []
    # All pieces of memory hang together if they are of one buffer in which hardly a block is left out.
    begins = sorted(after.keys() - set(after.values()))
    position: dict[int, int] = {}
    if len(begins) == 1:
        at: int | None = begins[0]
        while at is not None:
            position[at] = len(position)
            at = after.get(at)
    if len(position) != len(after) + 1 or len(position) > load.buffer_blocks:
        return [f"{len(after)} neighbours among the addresses are not one buffer of {load.buffer_blocks} blocks"]
    # What lies before the first block that was moved is not known.
    shifts = range(load.buffer_blocks - len(position) + 1)
    starts = [position[one[0]] for one in addresses]
    why = [chance.uneven([start + shift for start in starts], load.starts()) for shift in shifts]
    return [] if not all(why) else [f"where commands begin in memory: {why[0]}"]


def _in_order(targets: list[tuple[int, int]], addresses: list[list[int]]) -> list[str]:
    """Where one command goes after the other, it is known which block of the buffer each address must be."""
    known: dict[int, int] = {}
    for (start, _), one in zip(targets, addresses, strict=True):
        for block, address in enumerate(one, start):
            if known.setdefault(block, address) != address:
                return [f"block {block} of the buffer was at address {known[block]:#x} and at {address:#x}"]
    return []


def _often(times: Counter[int]) -> str:
    """How often, from the least on."""
    return " or ".join(str(number) for number in sorted(set(times.values())))
