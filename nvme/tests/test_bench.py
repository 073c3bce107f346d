"""How the comparison with fio is put together; the runs themselves are `make bench-nvme`."""

import unittest

from nvme.bench import POINTS, Point, arms, compared, rounds, table


class Comparison(unittest.TestCase):
    def test_everybody_is_first_once(self) -> None:
        orders = rounds(Point("direct", 4096, 32), 3)
        self.assertEqual({order[0] for order in orders}, {"ours", "fio", "fio batched"})
        self.assertTrue(all(sorted(order) == sorted(orders[0]) for order in orders))
        self.assertEqual({order[0] for order in rounds(Point("direct", 4096, 1), 2)}, {"ours", "fio"})

    def test_ratios_are_of_rounds(self) -> None:
        found = compared({"ours": [1.0, 4.0, 3.0], "fio": [2.0, 2.0, 3.0]})
        self.assertEqual(found["median"], {"ours": 3.0, "fio": 2.0})
        self.assertEqual(found["ours_over"], {"fio": {"median": 1.0, "least": 0.5, "most": 2.0}})

    def test_all_ask_for_the_same(self) -> None:
        for point in POINTS:
            for words in arms(point).values():
                line = " ".join(words(point, "/dev/x", 7))
                self.assertRegex(line, rf"(--bs=|--block-size ){point.block_bytes}\b")
                self.assertRegex(line, rf"(--iodepth=|--depth ){point.depth}\b")
                # The target's first block, so many times.
                fio, ours = f"--rw=read:-{point.block_bytes} .*--io_size={7 * point.block_bytes}", "--commands 7"
                self.assertRegex(line, rf"({fio}|{ours})\b")

    def test_a_table_has_a_line_for_each_point(self) -> None:
        one = compared({"ours": [1.0], "fio": [2.0]})
        two = compared({"ours": [1.0], "fio": [2.0], "fio batched": [4.0]})
        rows = [
            {"point": {"path": "direct", "block_bytes": 4096, "depth": 1}, "iops": one},
            {"point": {"path": "direct", "block_bytes": 4096, "depth": 32}, "iops": two},
        ]
        lines = table(rows).splitlines()
        self.assertEqual(lines[2], "| direct 4 KiB depth 1 | 1 | 2 | 0.50 (0.50 to 0.50) |  |  |")
        self.assertEqual(lines[3], "| direct 4 KiB depth 32 | 1 | 2 | 0.50 (0.50 to 0.50) | 4 | 0.25 (0.25 to 0.25) |")
        self.assertEqual({line.count("|") for line in lines if line}, {7})


if __name__ == "__main__":
    unittest.main()
