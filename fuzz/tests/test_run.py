"""Tests how libFuzzer's logs are counted and findings are named, on logs as libFuzzer 0.4.13 writes them."""

import tempfile
import unittest
from pathlib import Path

from fuzz import run

DONE = """INFO: Seed: 1991497977
#2	INITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 27Mb
#8388608	pulse  cov: 12 ft: 14 corp: 3/7b lim: 4096 exec/s: 2796202 rss: 27Mb
#48910557	DONE   cov: 12 ft: 15 corp: 4/7b lim: 4096 exec/s: 1577759 rss: 27Mb
stat::number_of_executed_units: 48910557
stat::average_exec_per_sec:     1577759
stat::new_units_added:          4
stat::slowest_unit_time_sec:    0
stat::peak_rss_mb:              27
"""

PANIC = """#2	INITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 27Mb

thread '<unnamed>' (7) panicked at src/glob.rs:69:20:
regex compilation shouldn't fail
==7== ERROR: libFuzzer: deadly signal
stat::number_of_executed_units: 300
Test unit written to /x/crash-0a
"""


class Counting(unittest.TestCase):
    def test_figures_of_several_runs_add_up_and_the_largest_coverage_is_kept(self) -> None:
        figures = run.Figures()
        run.counted(DONE, figures)
        run.counted(PANIC, figures)
        self.assertEqual((figures.executions, figures.edges, figures.features), (48_910_857, 12, 15))
        self.assertEqual((figures.inputs, figures.peak_mib), (1, 27))

    def test_a_finding_is_named_by_its_panic_or_by_libfuzzers_message(self) -> None:
        self.assertEqual(run.reason(PANIC), "src/glob.rs:69:20: regex compilation shouldn't fail")
        memory = "memory allocation of 600000000 bytes failed\n==7== ERROR: libFuzzer: deadly signal\n"
        self.assertEqual(run.reason(memory), "memory allocation of 600000000 bytes failed")
        self.assertEqual(run.reason("==7== ERROR: libFuzzer: timeout after 60 seconds\n"), "ERROR: libFuzzer: timeout after 60 seconds")
        self.assertEqual(run.reason("\n"), "ended: without a message")

    def test_the_table_has_a_row_for_each_target_a_sum_and_every_finding(self) -> None:
        figures = {"glob": run.Figures(1000, 2.0, 5, 6, 3, 40, {"crash-0a": "why"}), "chip": run.Figures(3000, 1.0, 7, 8, 2, 50)}
        lines = run.table(figures).splitlines()
        self.assertEqual(lines[2], "| chip | 3,000 | 3,000 | 7 | 8 | 2 | 50 | 0 |")
        self.assertEqual(lines[3], "| glob | 1,000 | 500 | 5 | 6 | 3 | 40 | 1 |")
        self.assertEqual(lines[4:], ["| all | 4,000 | | | | | | 1 |", "glob: crash-0a: why"])

    def test_figures_survive_between_runs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "deep/figures.json"
            self.assertEqual(run.saved(file), {})
            figures = {"glob": run.Figures(10, 1.5, 5, 6, 3, 40, {"crash-0a": "why"})}
            run.save(file, figures)
            self.assertEqual(run.saved(file), figures)
            self.assertIn("| glob | 10 |", file.with_suffix(".md").read_text())


class Targets(unittest.TestCase):
    def test_every_target_has_seeds_that_belong_to_it_and_the_seeds_are_small(self) -> None:
        folders = {path.name for path in (run.FUZZ / "corpus").iterdir()}
        self.assertEqual(folders, set(run.targets()))
        sizes = [path.stat().st_size for path in (run.FUZZ / "corpus").rglob("*") if path.is_file()]
        self.assertLess(sum(sizes), 1 << 20)

    def test_a_program_has_libfuzzer_read_by_the_target_of_its_name(self) -> None:
        for name in run.targets():
            text = (run.FUZZ / f"src/bin/{name}.rs").read_text()
            line = f"libfuzzer_sys::fuzz_target!(|data: &[u8]| waykeeper_fuzz_targets::{name}::read(data));\n"
            self.assertTrue(text.endswith(line), name)

    def test_a_dictionary_belongs_to_a_target(self) -> None:
        self.assertLessEqual({path.stem for path in (run.FUZZ / "dictionaries").iterdir()}, set(run.targets()))


if __name__ == "__main__":
    unittest.main()
