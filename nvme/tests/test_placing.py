"""A judge of contents finds fault with programs that move the wrong blocks, and none with one that moves the right ones."""

from __future__ import annotations

import random
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

from nvme import chance, placing
from nvme.load import Load
from nvme.placing import Sent
from nvme.trace import Command, Trace

DEVICE_BLOCKS = 8192

SEEDS = 40
"""Right programs that are tried for each load: none may be refused, which by chance one in some ten million is."""

LOADS = [
    Load("single", "read", "uring", depth=8),
    Load("single", "read", "uring"),
    Load("single", "read", "uring", workers=3, depth=4, commands=400),
    Load("single", "read", "uring", thesis=True),
    Load("packets", "read", "uring", stride=4, depth=8),
    Load("full", "read", "uring", commands=20),
    Load("full", "read", "uring", commands=10, thesis=True),
    Load("random", "read", "uring", commands=100, depth=4),
]


class Program:
    """A program that writes: it chooses which piece of its buffer is written at which place."""

    def __init__(self, load: Load, seed: int) -> None:
        self.load = load
        self.random = random.Random(seed)
        self.pieces = load.targets() or [(self.random.randrange(load.starts()), length) for length in load.lengths()]
        if load.depth * load.workers > 1:
            self.random.shuffle(self.pieces)
        self.places = [self.random.randrange(DEVICE_BLOCKS - length + 1) for _, length in self.pieces]

    def judged(self, lost: int = 0, order: list[int] | None = None) -> list[str]:
        """What is said of it, if so many of its blocks do not reach the device."""
        sent = [Sent(place, length) for place, (_, length) in zip(self.places, self.pieces, strict=True)]
        image: dict[int, int | None] = {}
        for number in order or range(len(sent)):
            for at in range(sent[number].blocks):
                image[sent[number].place + at] = self.pieces[number][0] + at
        for place in list(image)[:lost]:
            del image[place]
        return placing.by_places(self.load, sent, DEVICE_BLOCKS) + placing.by_image(self.load, sent, image)

    def judged_by_memory(self) -> list[str]:
        """The same of the addresses that its commands name; its buffer's pages lie anywhere."""
        pages = self.random.sample(range(1 << 17), self.load.buffer_blocks)
        return placing.by_addresses(
            self.load,
            [[pages[start + at] * 4096 for at in range(length)] for start, length in self.pieces],
        )


class Right(unittest.TestCase):
    def test_every_pattern_of_many_seeds(self) -> None:
        for load in LOADS:
            for seed in range(SEEDS):
                program = Program(load, seed)
                self.assertEqual(program.judged(), [], f"{load.name}, seed {seed}")
                self.assertEqual(program.judged_by_memory(), [], f"{load.name}, seed {seed}")

    def test_what_is_hidden_and_what_came_in_another_order(self) -> None:
        # Depth 8: of two commands to one place either may be the last.
        program = Program(LOADS[0], 1)
        program.places[7] = program.places[3]
        program.places[9] = program.places[3]
        for order in (None, [*range(8, 200), *range(8)]):
            self.assertEqual(program.judged(order=order), [])


class Wrong(unittest.TestCase):
    def refused(self, program: Program, text: str, **how: int) -> None:
        found = program.judged(**how)
        self.assertTrue(found, f"{program.load.name}: accepted")
        self.assertRegex(" ".join(found), text)

    def test_every_block_is_the_first_of_the_buffer(self) -> None:
        for load in LOADS[:5]:
            program = Program(load, 1)
            program.pieces = [(0, length) for _, length in program.pieces]
            self.refused(program, "more often than in the pattern|expected")
            self.assertTrue(program.judged_by_memory(), load.name)

    def test_all_begin_at_the_start_of_the_buffer(self) -> None:
        for load in LOADS[5:]:
            program = Program(load, 1)
            program.pieces = [(0, length) for _, length in program.pieces]
            self.refused(program, "starts of commands in the buffer|expected")
            self.assertTrue(program.judged_by_memory(), load.name)

    def test_some_block_is_never_sent_and_another_in_its_place(self) -> None:
        for load in LOADS[:7]:
            program = Program(load, 1)
            other = next(number for number, piece in enumerate(program.pieces) if piece[0] != program.pieces[0][0])
            program.pieces[other] = (program.pieces[0][0], program.pieces[other][1])
            self.refused(program, "more often|expected")

    def test_blocks_do_not_arrive(self) -> None:
        for load in LOADS:
            self.refused(Program(load, 1), "have their old content", lost=1)
            self.refused(Program(load, 1), "have their old content", lost=58)

    def test_random_draws_from_a_half_or_from_few(self) -> None:
        for draw in (lambda r: r.randrange(35), lambda r: 34 + r.randrange(35), lambda r: 10 * r.randrange(7)):
            program = Program(LOADS[-1], 1)
            program.pieces = [(draw(program.random), length) for _, length in program.pieces]
            self.refused(program, "starts of commands in the buffer")
            self.assertTrue(program.judged_by_memory())

    def test_random_reaches_beyond(self) -> None:
        program = Program(LOADS[-1], 1)
        program.pieces[0] = (70, 31)
        self.refused(program, "outside of 0 to 68")

    def test_places_on_the_device_are_not_anywhere(self) -> None:
        for places in ([0] * 200, list(range(200)), [place // 2 for place in Program(LOADS[0], 1).places]):
            program = Program(LOADS[0], 1)
            program.places = places
            self.refused(program, "places of commands of 1 blocks")

    def test_commands_of_another_length(self) -> None:
        program = Program(LOADS[0], 1)
        program.pieces[0] = (program.pieces[0][0], 2)
        self.refused(program, r"number\): {2: 1, 1: 199}|number\): {1: 199, 2: 1}")

    def test_a_command_is_torn(self) -> None:
        load = LOADS[5]
        sent = [Sent(100 * number, length) for number, (_, length) in enumerate(load.targets())]
        image = {one.place + at: load.targets()[n][0] + at for n, one in enumerate(sent) for at in range(one.blocks)}
        self.assertEqual(placing.by_image(load, sent, image), [])
        self.assertRegex(placing.by_image(load, sent, image | {105: 9})[0], "1 commands are not contiguous")
        self.assertRegex(placing.by_image(load, sent, image | {105: None})[0], "was never in the buffer")
        self.assertRegex(placing.by_image(load, sent, image | {50: 9})[0], "no command wrote")

    def test_one_after_the_other_is_judged_in_order(self) -> None:
        program = Program(LOADS[1], 1)
        program.pieces[3], program.pieces[4] = program.pieces[4], program.pieces[3]
        self.refused(program, "command 3 transferred")
        # With several commands at once the order is not known.
        program = Program(replace(LOADS[1], depth=2), 1)
        program.pieces[3], program.pieces[4] = program.pieces[4], program.pieces[3]
        self.assertEqual(program.judged(), [])

    def test_a_contested_block_is_of_neither(self) -> None:
        load = Load("full", "read", "uring", commands=2)
        sent = [Sent(0, 31), Sent(20, 31)]
        image = {at: at for at in range(20)} | {20 + at: 31 + at for at in range(31)}
        self.assertEqual(placing.by_image(load, sent, image), [])
        self.assertEqual(placing.by_image(load, sent, image | {25: 25}), [])
        self.assertRegex(placing.by_image(load, sent, image | {25: 26})[0], "none of its writers had")

    def test_reads_begin_elsewhere(self) -> None:
        load = Load("single", "write", "uring", commands=2)
        self.assertEqual(placing.by_places(load, [Sent(0, 1)] * 2, 100), [])
        self.assertRegex(placing.by_places(load, [Sent(0, 1), Sent(1, 1)], 100)[0], "1 reads did not begin")

    def test_memory_is_not_one_buffer(self) -> None:
        load = Load("full", "write", "uring", commands=2, buffer_blocks=8, most_blocks=5)
        self.assertEqual(placing.by_addresses(load, [[1, 2, 3, 4], [9, 8, 7, 6]]), [])
        self.assertRegex(placing.by_addresses(load, [[1, 2, 3, 4], [2, 8, 7, 6]])[0], "address 0x2 is followed")
        self.assertRegex(placing.by_addresses(load, [[1, 2, 3, 4], [9, 4, 7, 6]])[0], "followed by the same")


class Chances(unittest.TestCase):
    def test_different_numbers_by_hand(self) -> None:
        # Of two draws of two numbers both are the same in half of the cases: nothing below 1 can be asked for.
        self.assertEqual(chance.least_different(2, 2), 1)
        self.assertEqual(chance.least_different(1, 1000), 1)
        # Four draws of 1000 are the same in 1e-9 of the cases, which is as much as may be.
        self.assertEqual(chance.least_different(4, 999), 1)
        self.assertEqual(chance.least_different(4, 1001), 2)

    def test_the_bound_of_shares(self) -> None:
        # sqrt(ln(2e9) / 200) = 0.327.
        self.assertEqual(chance.uneven([at % 69 for at in range(100)], 69), "")
        self.assertRegex(chance.uneven([at % 45 for at in range(100)], 69), "may deviate by 0.33")


class Lines(unittest.TestCase):
    def test_commands_are_read_as_they_come(self) -> None:
        with tempfile.NamedTemporaryFile("w") as file:
            trace = Trace(Path(file.name))
            write = "pci_nvme_write cid 4 opname 'NVME_NVM_CMD_WRITE' nsid 1 nlb 16 count 8192 lba 0x20\n"
            read = "pci_nvme_read cid 5 nsid 3 nlb 1 count 4096 lba 0x0\n"
            file.write(read + "pci_nvme_map_addr addr 0x9000 len 4096\n")
            file.flush()
            trace.forget()
            file.write(write + "pci_nvme_map_addr addr 0x1000 len 4096\npci_nvme_flush_ns nsid 0x3\n")
            file.write("pci_nvme_map_addr addr 0x5000 len 40")
            file.flush()
            self.assertEqual(trace.commands(1), [Command(True, 32, 16, ((0x1000, 4096),))])
            file.write("96\n" + read)
            file.flush()
            self.assertEqual(trace.commands(3), [Command(False, 0, 1, ())])
            command = trace.commands(1)[0]
            self.assertEqual(command.addresses(4096), [0x1000, 0x5000])
            self.assertEqual(command.addresses(8192), None)
            self.assertEqual((trace.flushes(3), trace.flushes(1)), (1, 0))
