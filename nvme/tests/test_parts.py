"""The parts that need no guest: arithmetic of patterns, content, what is read out of answers, and that a judge finds fault."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from guests.qmp import Counts
from guests.session import Outcome, SessionError
from nvme import content, counting, machine
from nvme.load import Load, report
from nvme.machine import Device
from nvme.trace import Command


class Patterns(unittest.TestCase):
    def test_blocks_by_hand(self) -> None:
        def both(pattern: str, commands: int, thesis: bool) -> tuple[int, int]:
            load = Load(pattern, "write", "uring", commands=commands, buffer_blocks=70, most_blocks=32, thesis=thesis)
            return load.counted(), load.moved()

        self.assertEqual(both("single", 5, False), (5, 5))
        # The published program moves one more.
        self.assertEqual(both("single", 5, True), (5, 10))
        self.assertEqual(both("random", 3, False), (93, 93))
        self.assertEqual(both("random", 3, True), (93, 96))
        # 31 + 31 + 8, and from the start again; the buffer has nothing behind the 8.
        self.assertEqual(both("full", 4, False), (101, 101))
        self.assertEqual(both("full", 4, True), (101, 104))
        self.assertEqual(both("packets", 7, False), (7, 7))
        self.assertEqual(both("flush", 7, True), (0, 0))

    def test_only_who_writes_gets_consent(self) -> None:
        self.assertIn("--destroy-data-on", Load("single", "read", "uring").words("/dev/x", "wk1"))
        self.assertNotIn("--destroy-data-on", Load("single", "write", "uring").words("/dev/x", "wk1"))


class Answers(unittest.TestCase):
    def test_summary_and_messages_are_separated(self) -> None:
        ended = report(Outcome('{\n  "commands": 3\n}\nengine: uring\nerror: no\n', 1))
        self.assertEqual(
            (ended.summary, ended.messages, ended.status), ({"commands": 3}, "engine: uring\nerror: no", 1)
        )
        self.assertEqual(report(Outcome("error: no\n", 2)).summary, None)
        self.assertIn("no JSON", report(Outcome('{"commands": ', 2)).messages)


class Content(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.image = Path(folder.name) / "image"

    def test_what_changes_is_found_and_given_back(self) -> None:
        content.write(self.image, 3 << 20)
        self.assertEqual(content.changed(self.image, 4096), {})
        with open(self.image, "r+b") as file:
            file.seek((1 << 20) + 512)
            file.write(b"x")
        # 2^20 / 512 + 1.
        self.assertEqual(list(content.changed(self.image, 512)), [2049])
        changed = content.changed(self.image, 4096)
        self.assertEqual(list(changed), [256])
        self.assertEqual(changed[256][512:513], b"x")
        content.restore(self.image, changed, 4096)
        self.assertEqual(content.changed(self.image, 512), {})

    def test_every_block_contains_its_position(self) -> None:
        self.assertEqual(content.known(8192, 8), (content.TAG + 1024).to_bytes(8, "little"))

    def test_the_buffer_is_splitmix(self) -> None:
        # SplitMix64's first outputs from the state 0 (its author's own, and those of java.util.SplittableRandom): a word
        # is the output of a state that has been advanced once less.
        self.assertEqual([content.word(0, number) for number in (1, 2)], [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4])
        self.assertEqual(len(content.buffer(1, 5, 512)), 5)


class Judging(unittest.TestCase):
    LOAD = Load("full", "read", "uring", commands=4, buffer_blocks=8, most_blocks=5, block_bytes=512)

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        image = Path(folder.name) / "image"
        image.write_bytes(bytes(512 * 1000))
        self.device = Device("wk1", 1, 512, image)
        # Four commands of four blocks each, from 0 and from 4, in different places.
        places = (10, 300, 600, 900)
        self.commands = [
            Command(True, place, 4, ((0x1000 + 2048 * (number % 2), 2048),)) for number, place in enumerate(places)
        ]
        blocks = {number: block for block, number in content.buffer(1, 8, 512).items()}
        self.changed = {
            place + at: blocks[4 * (number % 2) + at] for number, place in enumerate(places) for at in range(4)
        }

    def judged(self, commands: list[Command] | None = None, **changed: bytes) -> str:
        more = {int(place[1:]): block for place, block in changed.items()}
        return " ".join(counting.by_commands(self.LOAD, self.device, commands or self.commands, self.changed | more))

    def test_commands_and_content_agree(self) -> None:
        self.assertEqual(self.judged(), "")
        self.assertRegex(self.judged(b11=bytes(512)), "1 blocks have content that was never in the buffer")
        self.assertRegex(self.judged(b20=bytes(512)), "was never in the buffer")
        back = [Command(False, one.lba, one.blocks, one.pieces) for one in self.commands]
        self.assertRegex(self.judged(back), "4 commands have the wrong direction")
        short = [Command(True, one.lba, one.blocks, ((0x1000, 1024),)) for one in self.commands]
        self.assertRegex(self.judged(short), "the memory of 4 commands")
        same = [Command(True, one.lba, one.blocks, ((0x1000, 2048),)) for one in self.commands]
        self.assertRegex(self.judged(same), "block 4 of the buffer was at|addresses were used")
        idle = Load("flush", "write", "uring", commands=3)
        self.assertRegex(counting.by_commands(idle, self.device, self.commands, {})[0], "4 commands with data")
        self.assertEqual(counting.by_commands(idle, self.device, [], {}), [])

    def test_counts_are_exact(self) -> None:
        right = Counts(0, 0, 4, 16 * 512, 0)
        self.assertEqual(counting.by_counts(self.LOAD, right), [])
        for wrong in (Counts(0, 0, 4, 15 * 512, 0), Counts(1, 0, 4, 16 * 512, 0), Counts(0, 0, 4, 16 * 512, 1)):
            self.assertEqual(len(counting.by_counts(self.LOAD, wrong)), 1)
        flush = Load("flush", "write", "uring", commands=3)
        self.assertEqual(counting.by_counts(flush, Counts(0, 0, 0, 0, 3)), [])

    def test_a_summary_that_says_something_else_is_wrong(self) -> None:
        summary = {
            "engine": "uring", "pattern": "full", "op": "read", "block_bytes": 512,
            "commands": 4, "blocks": 16, "blocks_moved": 16, "errors": 0,
        }  # fmt: skip
        self.assertEqual(counting.by_summary(self.LOAD, counting.Report(summary, "", 0)), [])
        self.assertEqual(len(counting.by_summary(self.LOAD, counting.Report(summary | {"blocks": 15}, "", 0))), 1)
        self.assertEqual(len(counting.by_summary(self.LOAD, counting.Report(summary, "", 1))), 1)
        self.assertEqual(len(counting.by_summary(self.LOAD, counting.Report(None, "", 0))), 1)


class Boots(unittest.TestCase):
    def boots(self, failures: int) -> tuple[list[str], object]:
        """What happened in order, and what came of it, if so many boots fail."""
        seen: list[str] = []
        stack = contextlib.ExitStack()

        def boot() -> str:
            number = seen.count("boot")
            seen.append("boot")
            stack.callback(seen.append, "ended")
            if number < failures:
                raise SessionError("the guest did not come up")
            return "up"

        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                found = machine.until_up("guest", stack, boot)
            except SessionError as error:
                found = error
        self.assertEqual(printed.getvalue().count("booting again"), min(failures, machine.BOOTS - 1))
        return seen, found

    def test_a_guest_without_progress_is_ended_and_booted_again(self) -> None:
        self.assertEqual(self.boots(0), (["boot"], "up"))
        self.assertEqual(self.boots(1), (["boot", "ended", "boot"], "up"))

    def test_a_guest_that_never_comes_up_is_a_failure(self) -> None:
        seen, found = self.boots(machine.BOOTS)
        self.assertEqual(seen.count("boot"), machine.BOOTS)
        self.assertIsInstance(found, SessionError)


if __name__ == "__main__":
    unittest.main()
