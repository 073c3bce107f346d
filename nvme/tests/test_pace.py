"""A judge of limits finds fault with commands that go early, in too large bursts, or not at all."""

from __future__ import annotations

import unittest

from nvme import pace
from nvme.pace import Paced

HALVES = Paced("uring", 200, 2, 2.0, 512)
"""Four slots of 100 commands and half a second."""

SHORT = Paced("uring", 1000, 1000, 1.0, 16)

START = 7_000_000_000


def sent(paced: Paced, step_ns: int = 2_000, late_ns: int = 40_000) -> list[int]:
    """A good program's: the share of each slot at its beginning."""
    times = [
        START + round(slot * paced.slot_ns) + late_ns + number * step_ns
        for slot, share in enumerate(paced.shares())
        for number in range(share)
    ]
    return [time // pace.TICK_NS * pace.TICK_NS for time in times]


class Slots(unittest.TestCase):
    def test_the_share_of_each_slot_is_right(self) -> None:
        self.assertEqual(Paced("uring", 30, 7, 1.0, 1).shares(), [4, 4, 4, 5, 4, 4, 5])
        for paced in (*pace.RUNS, HALVES, SHORT):
            for late in range(0, 100_000, 7_700):
                self.assertEqual(pace.judge(paced, sent(paced, late_ns=late)), [], f"{paced.name}, {late} ns late")
            self.assertEqual(pace.judge(paced, sent(paced, pace.EACH_NS)), [], paced.name)

    def test_all_at_once_are_early(self) -> None:
        self.assertRegex(
            pace.judge(HALVES, [START + 2000 * at for at in range(400)])[0], "its slot begins at 1500.00 ms"
        )

    def test_another_burst_than_was_asked_for(self) -> None:
        # The same rate, in one slot of a second: half a second early.
        seconds = Paced("uring", 200, 1, 2.0, 512)
        self.assertRegex(pace.judge(HALVES, sent(seconds))[0], "its slot begins at 500.00 ms")
        # And evenly: nothing is early, but the commands of the second slot are sent in the third.
        even = Paced("uring", 200, 200, 2.0, 512)
        self.assertEqual(pace.judge(even, sent(even)), [])
        times = sent(HALVES)
        self.assertRegex(
            pace.judge(HALVES, times[:100] + sorted(times[200:] + times[200:300]))[0], "slot 2: 100 of 200"
        )
        # The same slots, and their commands spread over them.
        self.assertRegex(pace.judge(HALVES, sent(HALVES, 4_000_000))[0], r"slot 0: \d\d of 100, slot 1: \d\d of 100")

    def test_a_burst_that_begins_late(self) -> None:
        times = sent(HALVES)
        for late_ns, found in (
            (100_000_000, []),
            (200_000_000, ["commands were late in 1 slots (slot 1: 100 of 100)"]),
        ):
            later = [*times[:100], *(time + late_ns for time in times[100:200]), *times[200:]]
            self.assertEqual(pace.judge(HALVES, later), found)

    def test_one_command_more_or_early(self) -> None:
        for paced in (HALVES, SHORT):
            times = sent(paced)
            self.assertRegex(pace.judge(paced, [*times, times[-1]])[0], f"the limit allows {len(times)}")
        times = sent(HALVES)
        times[100] -= 200_000_000
        self.assertRegex(pace.judge(HALVES, times)[0], r"command 100 was sent at most 300\.\d+ ms after")

    def test_a_share_that_is_one_too_large(self) -> None:
        # As the published program has it: 101 in each slot, and so fewer slots.
        generous = [time for slot in range(4) for time in [START + slot * 500_000_000 + at * 1000 for at in range(101)]]
        self.assertTrue(pace.judge(HALVES, generous))
        self.assertTrue(pace.judge(HALVES, generous[:400]))

    def test_too_few(self) -> None:
        times = sent(HALVES)
        self.assertEqual(pace.judge(HALVES, times[:396]), [])
        self.assertEqual(pace.judge(HALVES, times[:395]), ["395 commands were sent in 2.0 s, expected 400"])
        self.assertEqual(pace.judge(HALVES, []), ["0 commands were sent in 2.0 s, expected 400"])

    def test_a_rate_that_is_two_per_cent_too_fast(self) -> None:
        times = [START + (time - START) * 98 // 100 for time in sent(SHORT)]
        self.assertTrue(pace.judge(SHORT, times))

    def test_times_are_read(self) -> None:
        self.assertEqual(
            pace.read("      2      2.04822\n      1     12.00001\n"), [2_048_220_000] * 2 + [12_000_010_000]
        )


if __name__ == "__main__":
    unittest.main()
