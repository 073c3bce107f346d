"""A run of memload: its command line, and an independent calculation of the blocks that it must transfer.

This module implements memload's options and algorithms.md 7.2 in numbers of blocks. It must not depend on how transfers are counted.
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
    """`most_blocks` is not given on the command line; the program must find it."""
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
        """The command line. Only runs that write the device get the consent."""
        words = [
            "waykeeper", "memload", target, "--json", "--engine", self.engine,
            "--pattern", self.pattern, "--op", self.op, "--seed", str(self.seed),
            # `noop` sends no commands, so only time can end it.
            *(("--time", "0.2") if self.pattern == "noop" else ("--commands", str(self.commands))),
            "--depth", str(self.depth), "--workers", str(self.workers), "--stride", str(self.stride),
            "--block-size", str(self.block_bytes), "--buffer", str(self.buffer_blocks * self.block_bytes),
            # The option has no effect on commands of one block.
            *(("--max-blocks", str(self.most_blocks)) * (self.pattern in ("random", "full") and not self.finds_most)),
            "--profile", "thesis" if self.thesis else "exact",
        ]  # fmt: skip
        return words + (["--destroy-data-on", consent] if consent and self.op == "read" else [])

    def sent(self) -> int:
        """Number of commands."""
        return 0 if self.pattern == "noop" else self.commands

    def counted(self) -> int:
        """Number of blocks as the program counts them."""
        if self.pattern in ("flush", "noop"):
            return 0
        if self.pattern in ("single", "packets"):
            return self.commands
        if self.pattern == "random":
            # One less than the maximum.
            return self.commands * (self.most_blocks - 1)
        return sum(counted for _, counted in self._full())

    def moved(self) -> int:
        """Number of blocks that the device transfers."""
        return sum(self.lengths())

    def lengths(self) -> list[int]:
        """Blocks that each command transfers; with the profile `thesis` one more than counted, up to the end of the buffer."""
        if self.pattern == "random":
            return [self.most_blocks - 1 + self.thesis] * self.commands
        return [length for _, length in self.targets() or []]

    def targets(self) -> list[tuple[int, int]] | None:
        """First block in the buffer and length of each command, in order; None if they are random."""
        if self.pattern == "random":
            return None
        if self.pattern == "single":
            # The additional block must be in the buffer too.
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
        """Number of blocks, from the first of the buffer, at which a command of `random` may begin."""
        return self.buffer_blocks - (self.most_blocks - 1)

    def _full(self) -> list[tuple[int, int]]:
        """First block and counted blocks of each command: the buffer in order, one less than the maximum at a time."""
        found, position = [], 0
        for _ in range(self.commands):
            counted = min(self.most_blocks - 1, self.buffer_blocks - position)
            found.append((position, counted))
            position = (position + counted) % self.buffer_blocks
        return found


@dataclass(frozen=True)
class Report:
    """The results of a run: its summary (None: none), its messages, and its status."""

    summary: dict | None
    messages: str
    status: int

    def __str__(self) -> str:
        return f"status {self.status}, messages {self.messages[-1000:]!r}, summary {self.summary}"


def apart(command: str) -> str:
    """A shell command that prints standard error after standard output, so that they do not mix."""
    return f"{command} 2>/tmp/messages; status=$?; cat /tmp/messages; exit $status"


def line(words: list[str]) -> str:
    """The command line for the shell, with standard error after standard output."""
    return apart(shlex.join(words))


def report(outcome: Outcome) -> Report:
    """Parses the output of a command from `line` or `apart`."""
    text = outcome.output.lstrip()
    if not text.startswith("{"):
        return Report(None, text.strip(), outcome.status)
    try:
        summary, end = json.JSONDecoder().raw_decode(text)
    except ValueError as error:
        return Report(None, f"no JSON ({error}): {text}", outcome.status)
    return Report(summary, text[end:].strip(), outcome.status)
