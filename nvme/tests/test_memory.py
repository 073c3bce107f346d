"""A judge of memory finds fault with a buffer that does not hold what commands brought."""

from __future__ import annotations

import random
import unittest

from nvme import content, memory
from nvme.load import Load
from nvme.trace import Command

PAGE = memory.PAGE_BYTES


class Buffers(unittest.TestCase):
    def setUp(self) -> None:
        self.pages = [4096 * page for page in random.Random(1).sample(range(1 << 17), 20)]
        made = {number: block for block, number in content.buffer(1, 16, PAGE).items()}
        # The mapping begins two pages before the buffer and ends two behind it.
        self.blocks = [bytes(PAGE)] * 2 + [made[number] for number in range(16)] + [b""] * 2

    def bring(self, pieces: list[tuple[int, int]]) -> list[Command]:
        """Reads of the device's first blocks to these pieces of the buffer."""
        commands = []
        for start, length in pieces:
            addresses = self.pages[2 + start : 2 + start + length]
            commands.append(Command(False, 0, 8 * length, tuple((address, PAGE) for address in addresses)))
            for at in range(length):
                self.blocks[2 + start + at] = content.known(at * PAGE, PAGE)
        return commands

    def judged(self, pattern: str, commands: list[Command]) -> str:
        load = Load(
            pattern, "write", "uring", commands=len(commands), buffer_blocks=16, most_blocks=5,
            stride=3 if pattern == "packets" else 1,
        )  # fmt: skip
        # A mapping that is outside of the buffer comes first.
        return " ".join(memory.judge(load, commands, [([0] * 16, [bytes(PAGE)] * 16), (self.pages, self.blocks)]))

    def test_every_pattern_is_right(self) -> None:
        for pattern, pieces in (
            ("single", [(at, 1) for at in range(7)]),
            ("random", [(9, 4), (2, 4), (7, 4)]),
            ("full", [(0, 4), (4, 4), (8, 4)]),
            ("packets", [(0, 1), (3, 1), (6, 1), (9, 1), (12, 1), (0, 1)]),
        ):
            self.setUp()
            self.assertEqual(self.judged(pattern, self.bring(pieces)), "", pattern)

    def test_commands_go_to_other_places_than_the_patterns(self) -> None:
        for pattern, pieces in (
            ("single", [(0, 1), (0, 1), (1, 1)]),
            ("full", [(0, 4), (0, 4)]),
            ("packets", [(0, 1), (1, 1)]),
        ):
            self.setUp()
            self.assertRegex(self.judged(pattern, self.bring(pieces)), "command 1 transferred", pattern)
        self.setUp()
        self.assertRegex(self.judged("random", self.bring([(12, 4)])), "outside of 0 to 11")

    def test_memory_holds_something_else(self) -> None:
        commands = self.bring([(0, 4), (4, 4)])
        good = self.blocks[2 + 5]
        self.blocks[2 + 5] = content.known(2 * PAGE, PAGE)
        self.assertEqual(self.judged("full", commands), "block 5 of the buffer does not have block 1 of the device")
        self.blocks[2 + 5] = good[:-1] + b"x"
        self.assertEqual(self.judged("full", commands), "block 5 of the buffer does not have block 1 of the device")
        self.blocks[2 + 5] = good
        self.blocks[2 + 9] = good
        self.assertEqual(self.judged("full", commands), "block 9 of the buffer does not have its initial content")

    def test_a_command_names_other_memory(self) -> None:
        commands = self.bring([(0, 4)])
        back = Command(False, 0, 32, tuple(reversed(commands[0].pieces)))
        self.assertRegex(self.judged("full", [back]), r"in this order: \[3, 2, 1, 0\]")
        self.assertRegex(self.judged("full", [Command(False, 0, 8, ((1 << 40, PAGE),))]), "outside of the buffer")
        self.blocks = [b""] * 20
        self.assertRegex(self.judged("full", commands), "no mapping has")
