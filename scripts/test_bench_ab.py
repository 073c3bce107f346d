"""Tests of the arithmetic of bench_ab.py: ratios, start-up, verdict and table. None runs or times a program."""

import json
import sys
import unittest

import bench_ab
from bench_ab import Instructions, Timing


def timing(*rounds: tuple[float, float], policy: str = "default", same: bool = True) -> Timing:
    return Timing(policy, list(rounds), same)


class Arithmetic(unittest.TestCase):
    def test_medians_are_of_times_and_the_speed_up_is_of_rounds(self) -> None:
        # The machine is half as fast in the third round: the times of both double, and their ratio stays.
        one = timing((3.0, 2.0), (3.3, 2.0), (6.0, 4.0))
        self.assertEqual(one.medians(), (3.3, 2.0))
        self.assertEqual(one.speedups(), [1.5, 1.65, 1.5])

    def test_start_up_is_in_both_runs_and_so_in_neither_count(self) -> None:
        # 5e9 instructions of start-up, 1e9 per 0.1 simulated seconds.
        self.assertAlmostEqual(bench_ab.per_simulated_s((7_000_000_000, 0.2), (6_000_000_000, 0.1)), 1e10)

    def test_all_policies_are_summed_by_round(self) -> None:
        whole = bench_ab.total([timing((1.0, 0.5), (2.0, 1.0)), timing((3.0, 1.5), (4.0, 3.0), same=False)])
        self.assertEqual(whole.rounds, [(4.0, 2.0), (6.0, 4.0)])
        self.assertFalse(whole.same)

    def test_the_time_of_a_run_is_no_result(self) -> None:
        self.assertEqual(bench_ab.results('{"seed": 1, "wall_s": 0.25}'), {"seed": 1})


class Verdict(unittest.TestCase):
    def test_a_difference_is_clear_if_every_round_shows_it(self) -> None:
        for rounds, expected in [
            ([(3.0, 1.0), (2.0, 1.0), (4.0, 1.0)], "B is 3.00 times as fast as A (rounds 2.00 to 4.00)"),
            ([(1.0, 2.0), (1.0, 2.0)], "B is slower: 0.50 times as fast as A (rounds 0.50 to 0.50)"),
            (
                [(1.1, 1.0), (0.9, 1.0), (1.2, 1.0)],
                "no clear difference: B is 1.10 times as fast as A (rounds 0.90 to 1.20)",
            ),
            ([(1.01, 1.0), (1.01, 1.0)], "no clear difference: B is 1.01 times as fast as A (rounds 1.01 to 1.01)"),
        ]:
            self.assertEqual(bench_ab.verdict(timing(*rounds)), f"{expected}, same results")

    def test_different_results_are_in_the_verdict(self) -> None:
        self.assertTrue(bench_ab.verdict(timing((2.0, 1.0), same=False)).endswith(", different results"))


class Output(unittest.TestCase):
    def test_the_table_is_aligned_and_has_a_row_for_all(self) -> None:
        timings = [timing((3.0, 2.0)), timing((1.0, 1.0), policy="a4")]
        self.assertEqual(
            bench_ab.table(timings, [Instructions("a4", 16e9, 4e9)]).splitlines(),
            [
                "policy   A user s  B user s  speed-up  least  most  same  A Ginstr/sim s  B Ginstr/sim s   A/B",
                "default     3.000     2.000      1.50   1.50  1.50   yes",
                "a4          1.000     1.000      1.00   1.00  1.00   yes          16.000           4.000  4.00",
                "all         4.000     3.000      1.33   1.33  1.33   yes",
            ],
        )

    def test_json_has_every_round(self) -> None:
        text = json.dumps(bench_ab.as_json([timing((3.0, 2.0), (3.0, 2.0))], [Instructions("default", 2.0, 1.0)]))
        default = json.loads(text)["policies"]["default"]
        self.assertEqual(default["rounds"], [[3.0, 2.0], [3.0, 2.0]])
        self.assertEqual(default["speedup"], 1.5)
        self.assertEqual(default["instructions_per_simulated_s"], {"a": 2.0, "b": 1.0})

    def test_a_run_has_its_own_user_time_and_output(self) -> None:
        user_s, out, errors = bench_ab.run([sys.executable, "-c", "import sys; print(1); print(2, file=sys.stderr)"])
        self.assertEqual((out, errors), ("1\n", "2\n"))
        self.assertGreaterEqual(user_s, 0)


if __name__ == "__main__":
    unittest.main()
