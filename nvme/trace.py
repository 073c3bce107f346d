"""The commands of QEMU's NVMe device in its trace: place on the device, length, and addresses of the guest's memory.

This module parses QEMU's trace. It must not depend on which program sends commands or which commands are expected.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

EVENTS = ("pci_nvme_read", "pci_nvme_write", "pci_nvme_map_addr")
"""A command begins with one of the first two events, followed by one event of the third kind per piece of memory. The lines of two
commands do not mix, because one thread of QEMU handles all commands."""

_LINE = re.compile(
    r"(?P<verb>pci_nvme_(?:read|write)) cid \d+ (?:opname '[^']*' )?nsid (?P<nsid>\d+) nlb (?P<blocks>\d+)"
    r" count (?P<count>\d+) lba 0x(?P<lba>[0-9a-f]+)$"
    r"|pci_nvme_map_addr addr 0x(?P<address>[0-9a-f]+) len (?P<length>\d+)$"
    r"|pci_nvme_flush_ns nsid 0x(?P<flushed>[0-9a-f]+)$"
)


@dataclass(frozen=True)
class Command:
    """A read or write of the device, in its own blocks."""

    writes: bool
    """Whether the device is written."""
    lba: int
    blocks: int
    pieces: tuple[tuple[int, int], ...]
    """Address and length of each piece of memory, in order."""

    def addresses(self, step: int) -> list[int] | None:
        """The address of every `step` bytes of memory; None if the length of a piece is not a multiple of `step`."""
        if any(length % step for _, length in self.pieces):
            return None
        return [address + at for address, length in self.pieces for at in range(0, length, step)]


class Trace:
    """QEMU's growing log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0
        self._flushes: Counter[int] = Counter()
        self._commands: list[tuple[int, Command]] = []

    def flushes(self, nsid: int) -> int:
        """Flushes of a namespace so far."""
        self._look()
        return self._flushes[nsid]

    def forget(self) -> None:
        """Drops all commands so far."""
        self._look()
        self._commands = []

    def commands(self, nsid: int) -> list[Command]:
        """Reads and writes of a namespace since `forget`."""
        self._look()
        return [command for number, command in self._commands if number == nsid]

    def _look(self) -> None:
        """Reads the complete lines that were added since the last call."""
        with open(self._log, "rb") as file:
            file.seek(self._offset)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        for text in data.decode(errors="replace").splitlines():
            found = _LINE.search(text)
            if not found:
                continue
            if found["verb"]:
                command = Command(found["verb"] == "pci_nvme_write", int(found["lba"], 16), int(found["blocks"]), ())
                self._commands.append((int(found["nsid"]), command))
            elif found["flushed"]:
                self._flushes[int(found["flushed"], 16)] += 1
            elif self._commands:
                nsid, last = self._commands[-1]
                piece = (int(found["address"], 16), int(found["length"]))
                self._commands[-1] = (nsid, Command(last.writes, last.lba, last.blocks, (*last.pieces, piece)))
