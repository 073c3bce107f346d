"""A run of memload: the words that ask for it, and what it must move by arithmetic of our own.

It knows memload's command line and algorithms.md 7.2 in numbers of blocks. It must not know who counts what was moved.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from guests.session import Outcome


@dataclass(frozen=True)
class Load:
    """A run with an end."""

    pattern: str
    op: str
    """As memory sees it: "write" is a read of the device."""
    engine: str
    commands: int = 200
    depth: int = 1
    workers: int = 1
    block_bytes: int = 4096
    buffer_blocks: int = 100
    most_blocks: int = 32
    finds_most: bool = False
    """The program is not told `most_blocks` and must find out."""
    stride: int = 1
    thesis: bool = False
    seed: int = 1

    @property
    def name(self) -> str:
        marks = [self.engine, self.pattern, self.op]
        marks += [f"depth {self.depth}"] * (self.depth > 1) + [f"{self.workers} workers"] * (self.workers > 1)
        marks += [f"{self.block_bytes} B"] * (self.block_bytes != 4096) + ["thesis"] * self.thesis
        marks += [f"up to {self.most_blocks} blocks"] * self.finds_most
        return " ".join(marks)

    def words(self, target: str, consent: str | None) -> list[str]:
        """The command line. Only writing runs are given the consent."""
        words = [
            "waykeeper", "memload", target, "--json", "--engine", self.engine,
            "--pattern", self.pattern, "--op", self.op, "--seed", str(self.seed),
            # Nothing never comes to a number.
            *(("--time", "0.2") if self.pattern == "noop" else ("--commands", str(self.commands))),
            "--depth", str(self.depth), "--workers", str(self.workers), "--stride", str(self.stride),
            "--block-size", str(self.block_bytes), "--buffer", str(self.buffer_blocks * self.block_bytes),
            # Commands of a block have no use for it.
            *(("--max-blocks", str(self.most_blocks)) * (self.pattern in ("random", "full") and not self.finds_most)),
            "--profile", "thesis" if self.thesis else "exact",
        ]  # fmt: skip
        return words + (["--destroy-data-on", consent] if consent and self.op == "read" else [])

    def sent(self) -> int:
        """Commands."""
        return 0 if self.pattern == "noop" else self.commands

    def counted(self) -> int:
        """Blocks as the program counts them."""
        if self.pattern in ("flush", "noop"):
            return 0
        if self.pattern in ("single", "packets"):
            return self.commands
        if self.pattern == "random":
            # The most but one.
            return self.commands * (self.most_blocks - 1)
        return sum(counted for _, counted in self._full())

    def moved(self) -> int:
        """Blocks that the device moves."""
        return sum(self.lengths())

    def lengths(self) -> list[int]:
        """Blocks that each command moves: one more than it counts for the thesis, where the buffer has it."""
        if self.pattern == "random":
            return [self.most_blocks - 1 + self.thesis] * self.commands
        return [length for _, length in self.targets() or []]

    def targets(self) -> list[tuple[int, int]] | None:
        """First block in the buffer and length of each command, in order; None where they are drawn."""
        if self.pattern == "random":
            return None
        if self.pattern == "single":
            # What is moved beyond what is counted must be in the buffer, too.
            last = self.buffer_blocks - self.thesis
            return [(number % last, 1 + self.thesis) for number in range(self.commands)]
        if self.pattern == "packets":
            slots, length = self.buffer_blocks // self.stride, 1 + self.thesis
            starts = [number % slots * self.stride for number in range(self.commands)]
            return [(start, min(length, self.buffer_blocks - start)) for start in starts]
        if self.pattern == "full":
            return [(start, min(counted + self.thesis, self.buffer_blocks - start)) for start, counted in self._full()]
        return []

    def starts(self) -> int:
        """Where a command of `random` may begin: so many blocks, from the buffer's first on."""
        return self.buffer_blocks - (self.most_blocks - 1)

    def _full(self) -> list[tuple[int, int]]:
        """First block and blocks counted, command by command: the buffer in order, the most but one at a time."""
        found, position = [], 0
        for _ in range(self.commands):
            counted = min(self.most_blocks - 1, self.buffer_blocks - position)
            found.append((position, counted))
            position = (position + counted) % self.buffer_blocks
        return found


@dataclass(frozen=True)
class Report:
    """What a run left: its summary (None: none), what it told people, and its status."""

    summary: dict | None
    told: str
    status: int

    def __str__(self) -> str:
        return f"status {self.status}, told {self.told[-1000:]!r}, summary {self.summary}"


def apart(command: str) -> str:
    """A command of the shell, whose standard error comes behind its standard output instead of into the middle of it."""
    return f"{command} 2>/tmp/told; status=$?; cat /tmp/told; exit $status"


def line(words: list[str]) -> str:
    """The words as the shell wants them, with standard error kept apart."""
    return apart(shlex.join(words))


def report(outcome: Outcome) -> Report:
    """Reads what a command of `line` or `apart` has written."""
    text = outcome.output.lstrip()
    if not text.startswith("{"):
        return Report(None, text.strip(), outcome.status)
    try:
        summary, end = json.JSONDecoder().raw_decode(text)
    except ValueError as error:
        return Report(None, f"no JSON ({error}): {text}", outcome.status)
    return Report(summary, text[end:].strip(), outcome.status)
