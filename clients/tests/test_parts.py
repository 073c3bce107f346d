"""Tests of the report of checks and of the list of clients: python3 -m unittest discover -s clients/tests -t ."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from clients import run
from clients.testbed import checks, host, tools
from clients.testbed.checks import Cannot, Failed, Report

PMU = Cannot("counts .*", "it needs a PMU", r"no such event")


def reported(*outcomes: tuple[str, str | None], cannot: list[Cannot] | None = None) -> tuple[int, list[str]]:
    """Exit status and lines of a report of these checks and their problems."""
    report = Report([PMU] if cannot is None else cannot)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        for name, problem in outcomes:
            report.result(name, problem)
        status = report.close()
    return status, output.getvalue().splitlines()


class TheReport(unittest.TestCase):
    def test_a_check_that_is_not_listed_must_pass(self) -> None:
        self.assertEqual(
            reported(("reads", None), cannot=[]), (0, ["passed reads", "1 passed, 0 failed, 0 not possible"])
        )
        status, lines = reported(("reads", "gone"), cannot=[])
        self.assertEqual((status, lines[0]), (1, "FAILED reads: gone"))

    def test_a_listed_check_must_fail_for_the_listed_reason(self) -> None:
        status, lines = reported(("counts cycles", "perf: no such event"))
        self.assertEqual((status, lines[0]), (0, "not possible counts cycles: it needs a PMU"))
        self.assertEqual(lines[1], "0 passed, 0 failed, 1 not possible")
        status, lines = reported(("counts cycles", "segmentation fault"))
        self.assertEqual(status, 1)
        self.assertIn("not for the known reason", lines[0])

    def test_a_listed_check_that_passes_fails_the_client(self) -> None:
        status, lines = reported(("counts cycles", None))
        self.assertEqual(status, 1)
        self.assertIn("this reason no longer holds", lines[0])

    def test_a_reason_without_a_check_fails_the_client(self) -> None:
        status, lines = reported(("reads", None))
        self.assertEqual(status, 1)
        self.assertIn("no check has this name", lines[1])

    def test_a_client_without_checks_fails(self) -> None:
        self.assertEqual(reported(cannot=[])[0], 1)

    def test_a_lost_check_is_a_failure(self) -> None:
        report = Report([])
        with contextlib.redirect_stdout(io.StringIO()):
            report.check("one", lambda: None)
            report.count(2)
        self.assertEqual((report.passed, report.failed), (["one"], ["number of checks"]))

    def test_a_missing_part_fails_the_client_without_a_traceback(self) -> None:
        def broken(report: Report) -> None:
            raise Failed("no such package")

        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(checks.main(broken, [PMU]), 1)
        self.assertEqual(output.getvalue().splitlines()[0], "FAILED preparation: no such package")


class TheClients(unittest.TestCase):
    def test_every_script_of_the_folder_is_a_client(self) -> None:
        self.assertIn("selftests", run.names())
        self.assertNotIn("run", run.names())

    def closing(self, script: str) -> tuple[tuple[int, int, int], str]:
        """What the runner makes of a client."""
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()) as output:
            folder = Path(name) / "clients"
            folder.mkdir()
            (folder / "one.py").write_text(script)
            with mock.patch.object(tools, "REPOSITORY", Path(name)):
                return run.run("one", True), output.getvalue()

    def test_a_client_counts_by_its_closing_line(self) -> None:
        self.assertEqual(self.closing("print('5 passed, 0 failed')")[0], (5, 0, 0))
        self.assertEqual(self.closing("print('5 passed, 1 failed, 2 not possible'); exit(1)")[0], (5, 1, 2))

    def test_a_client_that_breaks_off_or_contradicts_itself_has_failed(self) -> None:
        for script in ("print('passed one')", "print('5 passed, 0 failed'); exit(1)", "print('5 passed, 1 failed')"):
            counts, output = self.closing(script)
            self.assertEqual(counts[1], 1, script)
            self.assertIn("FAILED", output)


class Programs(unittest.TestCase):
    def test_no_process_of_a_session_is_left(self) -> None:
        # The shell ends on SIGTERM, its child ignores it and keeps the pipe open: without SIGKILL this takes 600 s.
        command = ["sh", "-c", "trap '' TERM; sleep 600 & trap - TERM; echo $!; wait"]
        with host.started(command, subprocess.DEVNULL) as process:
            child = process.stdout.readline().strip() if process.stdout else ""
            self.assertTrue(Path(f"/proc/{child}").exists())
        # It has closed its pipe; it is a zombie a moment later, and until its new parent takes notice.
        stat, end = Path(f"/proc/{child}/stat"), time.monotonic() + 60
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            self.assertLess(time.monotonic(), end, "the process still runs")
            time.sleep(0.01)

    def test_a_folder_of_the_cache_has_its_name_only_when_it_is_complete(self) -> None:
        with tempfile.TemporaryDirectory() as name, mock.patch.object(tools, "CACHE", Path(name)):
            with self.assertRaises(Failed), tools.made("thing") as fresh:
                self.assertIsNotNone(fresh)
                raise Failed("the download broke off")
            self.assertFalse((Path(name) / "thing").exists())
            with tools.made("thing") as fresh:
                self.assertIsNotNone(fresh)
            with tools.made("thing") as fresh:
                self.assertIsNone(fresh)


if __name__ == "__main__":
    unittest.main()
