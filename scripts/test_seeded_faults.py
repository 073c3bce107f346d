"""Tests of seeded_faults.py: where a fault is put, its guard, the order of programs, what counts as caught. None builds anything."""

import sys
import tempfile
import threading
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import seeded_faults
from seeded_faults import Ended, Fault, Program, Runner

RUST = Fault("up", "arithmetic", "a", "crates/a/src/lib.rs", "x + 1", "x + 2", "two instead of one")
PYTHON = Fault("py", "flipped", "b", "python/b.py", "a < b", "a if c else b", "a comparison")
DATA = replace(RUST, id="data", file="data/a.toml", old="one = 1", new="one = 2",
               reader_file=RUST.file, reader="TEXT", reader_within="read(TEXT)")  # fmt: skip


class Trees(unittest.TestCase):
    """Tests with a small checkout."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)
        self.write(RUST.file, "fn f(x: u32) -> u32 { x + 1 }\nlet all = read(TEXT);\n")
        self.write(DATA.file, "one = 1\nten = 10\n")
        self.write(PYTHON.file, "ok = a < b\n")

    def write(self, file: str, text: str) -> None:
        (self.tree / file).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / file).write_text(text)

    def read(self, file: str) -> str:
        return (self.tree / file).read_text()


class Places(Trees):
    def test_a_text_must_be_there_once(self) -> None:
        self.assertEqual(seeded_faults.spot("a b a", "b"), (2, 3))
        self.assertIsNone(seeded_faults.spot("a b a", "a"))
        self.assertIsNone(seeded_faults.spot("a b a", "c"))
        # The text around it makes it unique, and must itself be unique.
        self.assertEqual(seeded_faults.spot("a b a", "a", within="b a"), (4, 5))
        self.assertIsNone(seeded_faults.spot("a a", "a", within="a a"))

    def test_what_does_not_fit_is_said(self) -> None:
        gone = replace(RUST, id="gone", old="y + 1")
        nowhere = replace(RUST, id="nowhere", file="crates/a/src/no.rs", old="y")
        self.assertEqual(
            list(
                seeded_faults.check(self.tree, [RUST, gone, nowhere, replace(DATA, reader="OTHER", reader_within="")])
            ),
            [
                "gone: crates/a/src/lib.rs: the text is there 0 times",
                "nowhere: crates/a/src/no.rs: no such file",
                "data: crates/a/src/lib.rs: the text is there 0 times",
            ],
        )

    def test_code_that_was_moved_within_its_package_is_found(self) -> None:
        moved = replace(RUST, old="a_long_name(of, arguments) + 1", new="0")
        self.write("crates/a/src/other.rs", f"let y = {moved.old};")
        self.write("crates/b/src/other.rs", f"let y = {moved.old};")
        made = seeded_faults.edit(self.tree, moved, plain=True)
        self.assertEqual((made.file, made.text), ("crates/a/src/other.rs", "0"))

    def test_faults_that_overlap_are_refused(self) -> None:
        wider = replace(RUST, id="wider", old="{ x + 1 }", new="{ 0 }")
        self.assertEqual(
            seeded_faults.seed(self.tree, [wider, RUST]), {"wider": "crates/a/src/lib.rs: it overlaps another fault"}
        )


class Guards(Trees):
    def test_an_expression_a_statement_and_a_text_are_guarded(self) -> None:
        self.assertEqual(seeded_faults.seed(self.tree, [RUST, DATA, PYTHON]), {})
        rust = self.read(RUST.file)
        self.assertIn('own == "up")); *SEEDED } { x + 2 } else { x + 1 }) }', rust)
        self.assertIn('read({ let text: &str = TEXT; if text.len() == 17 && text.contains(r###"one = 1"###) && {', rust)
        self.assertEqual(self.read(DATA.file), "one = 1\nten = 10\n")
        statement = seeded_faults.guarded(replace(RUST, old="go();", new=""))
        self.assertTrue(statement.startswith("if {") and statement.endswith("{  } else { go(); }"), statement)

    def test_a_guard_in_python_asks_the_environment(self) -> None:
        seeded_faults.seed(self.tree, [PYTHON])
        values = {"a": 1, "b": 2, "c": False}
        for switch, expected in (("none", True), ("py", 2)):
            with mock.patch.dict("os.environ", {seeded_faults.SWITCH: switch}):
                exec(self.read(PYTHON.file), values)
            self.assertEqual(values["ok"], expected)

    def test_two_texts_that_one_reader_reads_nest(self) -> None:
        self.assertEqual(
            seeded_faults.seed(self.tree, [DATA, replace(DATA, id="ten", old="ten = 10", new="ten = 11")]), {}
        )
        text = self.read(RUST.file)
        self.assertEqual((text.count("TEXT"), text.count("static SEEDED")), (1, 2))

    def test_one_fault_is_applied_and_reverted(self) -> None:
        before = self.read(RUST.file)
        with mock.patch("builtins.print"):
            self.assertEqual(seeded_faults.apply(self.tree, RUST), 0)
            self.assertIn("x + 2", self.read(RUST.file))
            self.assertEqual(seeded_faults.apply(self.tree, PYTHON), 2, "one at a time")
            self.assertEqual(seeded_faults.revert(self.tree), 0)
            self.assertEqual(seeded_faults.revert(self.tree), 1)
        self.assertEqual(self.read(RUST.file), before)


class Order(unittest.TestCase):
    def test_programs_of_the_crate_come_first_then_those_above_it(self) -> None:
        def package(name: str, *needs: str) -> dict:
            dependencies = [{"name": f"w-{need}"} for need in needs]
            return {"name": f"w-{name}", "manifest_path": f"/r/crates/{name}/Cargo.toml", "dependencies": dependencies}

        metadata = {
            "packages": [package("cli", "host", "serde"), package("host", "units"), package("units"), package("web")]
        }
        self.assertEqual(seeded_faults.distances(metadata, "units"), {"units": 0, "host": 1, "cli": 2})
        programs = [Program(name, name, [], Path(), "libtest") for name in ("web", "cli", "units", "host")]
        names = [program.name for program in seeded_faults.in_order(programs, metadata, "host")]
        self.assertEqual(names, ["host", "cli", "web", "units"])

    def test_the_crate_of_a_text_is_that_of_its_reader(self) -> None:
        self.assertEqual([fault.crate for fault in (RUST, PYTHON, DATA)], ["a", "python", "a"])


class Commands(unittest.TestCase):
    def test_tests_are_left_out_and_run_alone(self) -> None:
        program = Program("a", "a", ["/t"], Path(), "libtest")
        self.assertEqual(program.command(), ["/t"])
        self.assertEqual(program.command({"m::b", "a"}), ["/t", "--skip", "a", "--skip", "m::b", "--exact"])
        self.assertEqual(program.command(alone="a"), ["/t", "a", "--exact"])
        python = replace(program, kind="pytest")
        self.assertEqual(python.command({"t.py::x"}), ["/t", "python/tests", "--deselect=t.py::x"])
        self.assertEqual(python.command(alone="t.py::x"), ["/t", "--numprocesses=0", "t.py::x"])

    def test_failed_tests_are_read_from_each_kind_of_output(self) -> None:
        for kind, line, name in [
            ("libtest", "test a::b ... FAILED", "a::b"),
            ("libtest", "test a::b - should panic ... FAILED", "a::b"),
            ("pytest", "FAILED python/tests/test_a.py::test_b - AssertionError", "python/tests/test_a.py::test_b"),
            ("unittest", "FAIL: test_b (test_a.A.test_b)", "test_b (test_a.A.test_b)"),
        ]:
            self.assertEqual(seeded_faults.FAILED[kind].match(line)[1], name)
        self.assertIsNone(seeded_faults.FAILED["libtest"].match("test a ... ok"))


class Runs(unittest.TestCase):
    """`run` itself with small programs: shell and Python instead of tests."""

    def setUp(self) -> None:
        self.runner = Runner(Path("/"), jobs=2, seconds=20, say=lambda text: None)
        self.runner.tidy = lambda: None
        # Nothing of these is left behind, and all processes of a machine are many to look at.
        patch = mock.patch.object(seeded_faults, "swept", lambda mark, folder: folder.rmdir())
        patch.start()
        self.addCleanup(patch.stop)

    def shell(self, script: str) -> Program:
        return Program("a", "a suite", ["sh", "-c", script, "sh"], Path("/"), "libtest")

    def test_a_program_ends_at_its_first_failed_test(self) -> None:
        program = self.shell("echo 'test a ... ok'; echo 'test b ... FAILED'; exec sleep 20")
        ended = self.runner.run(program, "up", program.command(), threading.Event(), first=True)
        self.assertEqual(ended.failed, ["b"])

    def test_a_program_that_breaks_has_failed_itself(self) -> None:
        program = self.shell("exit 7")
        ended = self.runner.run(program, "up", program.command(), threading.Event(), first=True)
        self.assertEqual(ended.failed, ["the program itself, status 7"])

    def test_a_fault_is_caught_only_by_a_test_that_fails_alone_and_passes_without_it(self) -> None:
        always = self.shell(f'case "${seeded_faults.SWITCH}" in up) echo "test t ... FAILED"; exit 101;; esac')
        found = self.runner.look_for(RUST, [always], {}, most=20)
        self.assertEqual((found["verdict"], found["by"], found["doubted"]), ("caught", "a suite t", []))
        # Fails only beside others, and passes alone: no evidence. The program runs on without it.
        loaded = self.shell('case "$*" in "") echo "test t ... FAILED"; exit 101;; esac')
        found = self.runner.look_for(RUST, [loaded], {}, most=20)
        self.assertEqual((found["verdict"], found["doubted"]), ("missed", ["a suite t"]))
        # Fails without the fault too.
        broken = self.shell('case "$*" in *--skip*) ;; *) echo "test t ... FAILED"; exit 101;; esac')
        self.assertEqual(self.runner.look_for(RUST, [broken], {}, most=20)["verdict"], "missed")
        self.assertEqual(self.runner.look_for(RUST, [broken], {"a suite": ["t"]}, most=20)["doubted"], [])

    def test_time_that_is_over_is_not_missed(self) -> None:
        found = self.runner.look_for(RUST, [self.shell("exec sleep 20")], {}, most=0.1)
        self.assertEqual(found["verdict"], "missed in time")

    def test_a_baseline_has_what_fails_without_a_fault(self) -> None:
        with mock.patch.object(self.runner, "run", return_value=Ended(["t"])):
            self.assertEqual(self.runner.baseline([self.shell("")]), {"a suite": ["t"]})


class Results(unittest.TestCase):
    def test_a_line_that_was_cut_off_is_none_and_the_last_of_a_fault_counts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            self.assertEqual(seeded_faults.read_results(path), {})
            path.write_text('{"id": "up", "verdict": "missed"}\n{"id": "up", "verdict": "caught"}\n{"id": "py", "ver')
            self.assertEqual(seeded_faults.read_results(path), {"up": {"id": "up", "verdict": "caught"}})

    def test_the_table_has_the_verdict_last(self) -> None:
        run = {"up": {"verdict": "caught", "by": "a suite t", "seconds": 2.4}}
        self.assertEqual(
            seeded_faults.table([RUST, PYTHON], [run]),
            [
                "id  kind        area  verdict",
                "up  arithmetic  a     caught (2 s, a suite t)",
                "py  flipped     b     not run",
                "results: 1 caught, 1 not run",
            ],
        )


class Entries(unittest.TestCase):
    def test_entries_are_whole(self) -> None:
        # Whether they fit is for `check`: a change of the code need not know them.
        for fault in seeded_faults.faults():
            self.assertIn(fault.old, fault.within or fault.old, fault.id)
            self.assertEqual(bool(fault.reader), bool(fault.reader_file), fault.id)
            self.assertTrue(fault.wrong and fault.kind and fault.area, fault.id)
            self.assertTrue(fault.rebuild or fault.reader or fault.file.endswith((".rs", ".py")), fault.id)

    def test_two_entries_with_one_name_are_refused(self) -> None:
        entry = '[[fault]]\nid = "a"\nkind = "k"\narea = "a"\nfile = "f.rs"\nold = "x"\nnew = "y"\nwrong = "w"\n'
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "faults.toml"
            path.write_text(entry * 2)
            self.assertRaises(ValueError, seeded_faults.faults, path)


if __name__ == "__main__":
    sys.exit(unittest.main())
