"""Tests of the scripts behind `make test`: what counts as not run, and what a machine without a package manager is shown."""

import collections
import concurrent.futures
import json
import os
import pty
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import build_docs
import flaky
import make_test as whole
import passed
import run_tests
import tools

FAILURES = """
running 4 tests
test host::mounts ... FAILED
test masks::fit ... ok
test pqos::shows ... FAILED
test sums ... FAILED

failures:

---- host::mounts stdout ----

thread 'host::mounts' panicked at crates/testbed/src/machine.rs:61:9:
not run: needs root and /dev/fuse: cannot mount on /tmp/x: Operation not permitted
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- pqos::shows stdout ----

thread 'pqos::shows' panicked at host.rs:1:1:
not run: needs pqos: install it with apt-get install intel-cmt-cat

---- sums stdout ----

thread 'sums' panicked at x.rs:1:1:
assertion `left == right` failed


failures:
    host::mounts
    pqos::shows
    sums

test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""


class NotRun(unittest.TestCase):
    def test_a_test_that_lacks_what_is_missing_here_is_not_run(self) -> None:
        failed, not_run = run_tests.sorted_out(FAILURES, {"root", "pqos"})
        self.assertEqual(failed, ["sums"])
        self.assertEqual(not_run, {"host::mounts": "root", "pqos::shows": "pqos"})

    def test_a_test_that_lacks_what_is_present_has_failed(self) -> None:
        failed, not_run = run_tests.sorted_out(FAILURES, {"/dev/fuse"})
        self.assertEqual(failed, ["pqos::shows", "sums"])
        self.assertEqual(not_run, {"host::mounts": "/dev/fuse"})

    def test_a_program_is_judged_by_its_list_of_failures(self) -> None:
        for text, missing, good, status in [
            (FAILURES, {"root", "pqos"}, False, 1),
            (FAILURES.replace("    sums\n", "").replace("3 failed", "2 failed"), {"root", "pqos"}, True, 3),
            ("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\n", set(), True, 0),
            ("killed before libtest's last line\n", {"root"}, False, 1),
            ("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\naborts\n", set(), False, 1),
            (FAILURES.replace("3 failed", "4 failed"), {"root", "pqos", "/dev/fuse"}, False, 1),
        ]:
            with tempfile.TemporaryDirectory() as folder:
                # Two levels below a folder of `target`, as cargo has it; the program prints the text.
                place = Path(folder, "debug/deps/program")
                place.parent.mkdir(parents=True)
                place.with_suffix(".txt").write_text(text)
                place.write_text(
                    f"#!/bin/sh\ncat {place}.txt\ngrep -q aborts {place}.txt && kill -ABRT $$\n"
                    f"grep -q FAILED {place}.txt && exit 101\ngrep -q result {place}.txt\n"
                )
                place.chmod(0o755)
                program = run_tests.Program("x", "suite", place, Path(folder))
                lines: list[str] = []
                summary = run_tests.run_all(run_tests.Queue.of([program]), 1, missing, lines.append)
                self.assertEqual(summary.failed == [], good, text)
                self.assertEqual(run_tests.report(summary, lines.append), status, lines)
                for name in summary.not_run:
                    self.assertTrue(any(name in line and "needs" in line for line in lines), lines)


TIMED = """
test host::mounts ... FAILED <1.500s>
test masks::fit ... ok <0.012s>
test masks::refuses - should panic ... ok <0.250s>
test sums ... ignored
"""


class Times(unittest.TestCase):
    def test_each_test_has_the_seconds_that_libtest_printed(self) -> None:
        found = {name: float(seconds) for name, seconds in run_tests.TIMED.findall(TIMED)}
        self.assertEqual(found, {"host::mounts": 1.5, "masks::fit": 0.012, "masks::refuses": 0.25})
        self.assertEqual([line.split()[-1] for line in run_tests.slowest(found)],
                         ["host::mounts", "masks::refuses", "masks::fit"])  # fmt: skip


class Order(unittest.TestCase):
    def program(self, package: str, target: str = "suite", folder: Path = Path(__file__).parent) -> run_tests.Program:
        return run_tests.Program(package, target, Path(__file__), folder)

    def test_tests_that_start_their_packages_programs_wait_until_those_are_built(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("src/main.rs", "src/bin/other.rs"):
                Path(folder, name).parent.mkdir(exist_ok=True)
                Path(folder, name).touch()

            def artifact(kind: str, name: str, test: bool) -> str:
                target = {"kind": [kind], "name": name}
                files = {"executable": f"/{name}", "filenames": [f"/{name}"], "manifest_path": f"{folder}/Cargo.toml"}
                return json.dumps({"reason": "compiler-artifact", "target": target, "profile": {"test": test}, **files})

            built = [
                artifact("test", "suite", True),
                artifact("bin", "other", True),
                artifact("bin", "waykeeper", False),
                artifact("cdylib", "extension", False),
                artifact("bin", "other", False),
            ]
            order: list[str] = []
            with mock.patch.object(run_tests.subprocess, "Popen") as cargo:
                running = cargo.return_value.__enter__.return_value
                running.returncode, running.stdout = 0, built
                whole = run_tests.build(
                    "cargo", lambda one: order.append(one.target), lambda _: order.append("products")
                )
                running.stdout, late = built[:-1], []
                run_tests.build("cargo", lambda one: late.append(one.target))
        self.assertEqual(order, ["(bin)", "products", "suite"])
        self.assertEqual(late, ["(bin)", "suite"], "tests of a program that is not built are not left out")
        self.assertEqual(whole.products, run_tests.Products(Path("/extension"), Path("/waykeeper")))

    def test_beside_the_build_one_program_runs_at_a_time_and_the_longest_of_what_is_there(self) -> None:
        queue = run_tests.Queue()
        for package in ("units", "cli", "machine"):
            queue.put(self.program(package))
        self.assertEqual(queue.take(beside_the_build=True).package, "machine")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            second = pool.submit(queue.take, False)
            self.assertFalse(concurrent.futures.wait([second], timeout=0.05).done)
            queue.put(self.program("linux-host"))
            queue.close()
            self.assertEqual(second.result().package, "cli")
        left = [queue.take(False), queue.take(True), queue.take(True), queue.take(False)]
        self.assertEqual([program and program.package for program in left], ["linux-host", "units", None, None])

    def test_a_build_that_fails_leaves_no_program_waiting(self) -> None:
        queue = run_tests.Queue()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(queue.take, beside) for beside in (True, False)]
            queue.close()
            self.assertEqual([one.result() for one in waiting], [None, None])
        queue = run_tests.Queue()
        queue.put(self.program("units"))
        queue.close(keeps=False)
        self.assertEqual([queue.take(True), queue.take(False)], [None, None])


class PassedBefore(unittest.TestCase):
    """A tree with two packages, a page and a program that was built from it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("crates/a/src/lib.rs", "crates/b/src/lib.rs", "docs/page.md", "target/program"):
            self.write(name, name)
        self.write(".gitignore", "target/")
        subprocess.run(["git", "init", "--quiet"], cwd=self.root, check=True)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def passed(self, *machine: str) -> passed.Passed:
        return passed.Passed(self.root, self.root / "target/passed.json", machine)

    def key(self, *machine: str, folder: str | None = "crates/a") -> str | None:
        return self.passed(*machine).key([self.root / "target/program"], self.root / folder if folder else None)

    def test_whatever_a_program_meets_makes_it_another_one(self) -> None:
        first, everything = self.key(), self.key(folder=None)
        self.assertEqual(self.key(), first)
        self.write("crates/b/src/lib.rs", "of another package, so in the executable if anywhere")
        self.assertEqual(self.key(), first)
        self.assertNotEqual(self.key(folder=None), everything)
        seen = [first, self.key("fio")]
        for name in (
            "crates/a/src/lib.rs",
            "crates/a/tests/new.rs",
            "docs/page.md",
            "scenarios/new.toml",
            "target/program",
        ):
            self.write(name, "changed")
            seen.append(self.key())
        (self.root / "docs/page.md").unlink()
        seen.append(self.key())
        with mock.patch.dict(os.environ, {"TEST_LONG": "1"}):
            seen.append(self.key())
        self.assertEqual(len(set(seen)), len(seen), seen)

    def test_what_passed_is_kept_and_what_failed_runs_again(self) -> None:
        store, key = self.passed(), self.key()
        self.assertFalse(store.has("a", key))
        store.note("a", key)
        store.note("b", key)
        store.note("b", None)
        again = self.passed()
        self.assertEqual([again.has("a", key), again.has("b", key), again.has("a", "other")], [True, False, False])
        self.write("target/passed.json", "damaged")
        self.assertFalse(self.passed().has("a", key))

    def test_threads_may_note_at_a_time(self) -> None:
        store, key = self.passed(), self.key()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.note(f"p{number}", key), range(200)))
        self.assertEqual(len(self.passed().keys), 200)

    def test_without_git_nothing_has_passed(self) -> None:
        with mock.patch.dict(os.environ, {"GIT_DIR": str(self.root / "none")}):
            key = self.key()
        self.assertIsNone(key)
        self.assertFalse(self.passed().has("a", key))

    def test_a_program_runs_once_until_something_changes(self) -> None:
        self.write("debug/deps/program", "#!/bin/sh\necho 'test result: ok. 2 passed; 0 failed; 0 ignored'\n")
        executable = self.root / "debug/deps/program"
        executable.chmod(0o755)
        program = run_tests.Program("a", "suite", executable, self.root / "crates/a")
        counts = []
        for change in (None, None, "docs/page.md"):
            if change:
                self.write(change, "changed")
            queue = run_tests.Queue.of([program])
            summary = run_tests.run_all(queue, 2, set(), lambda _: None, passed=self.passed())
            counts.append((summary.passed, summary.unchanged))
        self.assertEqual(counts, [(2, 0), (0, 1), (2, 0)])


class Flaky(unittest.TestCase):
    def test_each_test_that_failed_is_named_once_with_its_rounds(self) -> None:
        names = flaky.FAILED_PYTHON.findall("FAILED tests/a.py::b[1] - x\nERROR tests/c.py::d\npassed FAILED no\n")
        self.assertEqual(names, ["tests/a.py::b[1]", "tests/c.py::d"])
        lines = flaky.table(collections.Counter(names + names[:1]), 3).splitlines()
        self.assertEqual(lines, ["  2 of 3  tests/a.py::b[1]", "  1 of 3  tests/c.py::d",
                                 "flaky: 2 tests failed at least once"])  # fmt: skip
        self.assertEqual(flaky.table(collections.Counter(), 20), "flaky: 20 of 20 rounds green")

    def test_a_half_does_not_wait_for_the_other_and_a_round_has_both(self):
        order: list[str] = []
        second = threading.Event()

        def fast() -> tuple[list[str], str]:
            order.append("fast")
            if order.count("fast") == 2:
                second.set()
            return [], "fast"

        def slow() -> tuple[list[str], str]:
            # The first round of this half lasts until the second of the other has begun.
            self.assertTrue(second.wait(60))
            return ["failed"], "slow"

        found = list(flaky.rounds_of([fast, slow], 2))
        self.assertEqual(found, [(([], "fast"), (["failed"], "slow"))] * 2)
        self.assertEqual(list(flaky.rounds_of([fast], 1)), [(([], "fast"),)])

    def test_rounds_of_a_commit_are_kept_and_those_of_a_changed_tree_are_not(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run_tests, "ROOT", Path(folder)), \
                mock.patch.object(flaky, "OUT", Path(folder, "target")):  # fmt: skip
            Path(folder, ".gitignore").write_text("target\n")
            flaky.OUT.mkdir()
            who = ["-c", "user.name=a", "-c", "user.email=a@b"]
            for words in (["init"], ["add", "."], [*who, "commit", "-m", "first"]):
                subprocess.run(
                    ["git", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            flaky.Rounds(None).add(["cli suite a", "cli suite a"])
            flaky.Rounds(None).add([])
            flaky.Rounds("rust").add(["other"])
            kept = flaky.Rounds(None)
            self.assertEqual((kept.found, kept.failures), ([["cli suite a", "cli suite a"], []], {"cli suite a": 1}))
            Path(folder, "new").touch()
            self.assertEqual(flaky.Rounds(None).found, [])

    def test_the_other_work_ends_with_the_rounds(self) -> None:
        with mock.patch.object(flaky.subprocess, "Popen") as started, flaky.load():
            self.assertEqual(started.call_count, flaky.BUSY)
        self.assertEqual(started.return_value.kill.call_count, flaky.BUSY)


class InMemory(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name)
        environment = mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop("TMPDIR", None)

    def filesystem(self, blocks: int, flag: int = 0) -> mock._patch:
        """A filesystem with so many free blocks of 4 KiB, mounted with these flags."""
        return mock.patch.object(
            tools.os, "statvfs", return_value=mock.Mock(f_bavail=blocks, f_frsize=4096, f_flag=flag)
        )

    def test_temporary_files_are_made_there_by_any_user_and_are_gone_afterwards(self) -> None:
        with self.filesystem(1 << 20), tools.folder_in_memory(self.place):
            (folder,) = self.place.iterdir()
            self.assertEqual(os.environ["TMPDIR"], str(folder))
            self.assertEqual(folder.stat().st_mode & 0o7777, 0o1777)
            (folder / "left").touch()
        self.assertNotIn("TMPDIR", os.environ)
        self.assertEqual(list(self.place.iterdir()), [])

    def test_a_place_without_room_or_where_nothing_may_be_run_is_not_taken(self) -> None:
        for filesystem in (self.filesystem((1 << 20) - 1), self.filesystem(1 << 20, os.ST_NOEXEC)):
            with filesystem, tools.folder_in_memory(self.place):
                self.assertNotIn("TMPDIR", os.environ)
        with tools.folder_in_memory(self.place / "absent"):
            self.assertNotIn("TMPDIR", os.environ)

    def test_a_folder_that_the_user_chose_stays(self) -> None:
        os.environ["TMPDIR"] = "/chosen"
        with self.filesystem(1 << 20), tools.folder_in_memory(self.place):
            self.assertEqual(os.environ["TMPDIR"], "/chosen")


class Setup(unittest.TestCase):
    def hidden(self) -> mock._patch:
        """A machine whose PATH has nothing in it: no package manager, no tool."""
        return mock.patch.object(tools, "search_path", return_value="/nonexistent")

    def test_the_table_has_a_line_for_each_need_and_aligned_columns(self) -> None:
        lines = tools.table([], "to be installed").splitlines()
        self.assertEqual(len(lines), len(tools.NEEDS) + 1)
        state = lines[0].index("state")
        self.assertTrue(all(line[state:] == "present" for line in lines[1:]), lines)

    def test_without_a_package_manager_the_packages_are_named(self) -> None:
        with self.hidden():
            lacking = tools.missing()
            names = {need.name for need in lacking}
            self.assertLessEqual({"cc", "pqos", "fio", "strace", "promtool"}, names)
            self.assertFalse(tools.can_install(lacking))
            self.assertIn("no known package manager", tools.advice(lacking)[0])
            self.assertIn("intel-cmt-cat", tools.advice(lacking)[0])
            self.assertRegex(tools.table(lacking, "missing"), r"(?m)^pqos .* missing$")

    def test_another_distribution_is_shown_its_own_command(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "dnf")
            program.write_text("#!/bin/sh\nexit 1\n")
            program.chmod(0o755)
            with mock.patch.object(tools, "search_path", return_value=folder):
                advice = "\n".join(tools.advice(tools.missing()))
                self.assertFalse(tools.can_install(tools.missing()))
        self.assertRegex(advice, r"as root: dnf install -y .*intel-cmt-cat.*golang-github-prometheus")

    def test_a_manager_without_a_package_says_which_tools_it_cannot_bring(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "pacman")
            program.write_text("#!/bin/sh\nexit 1\n")
            program.chmod(0o755)
            with mock.patch.object(tools, "search_path", return_value=folder):
                advice = "\n".join(tools.advice(tools.missing()))
        self.assertIn("pacman has no package known to bring: ", advice)
        self.assertIn("pqos", advice)

    def test_a_package_is_installed_once_although_two_tools_need_it(self) -> None:
        both = [need for need in tools.NEEDS if need.name in ("lspci", "setpci")]
        self.assertEqual(tools.packages_of(both, "apt-get"), ["pciutils"])

    def test_packages_are_installed_one_by_one_when_apt_refuses_them_together(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log, program = Path(folder, "log"), Path(folder, "apt-get")
            program.write_text(f'#!/bin/sh\necho "$@" >>{log}\ncase "$*" in *fio*) exit 100;; esac\n')
            program.chmod(0o755)
            wanted = [need for need in tools.NEEDS if need.name in ("fio", "strace")]
            with mock.patch.dict(os.environ, {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}):
                tools._install_packages(wanted, [])
            asked = [line.split()[-2:] for line in log.read_text().splitlines()]
        self.assertEqual(asked[1:], [["fio", "strace"], ["--no-install-recommends", "fio"],
                                     ["--no-install-recommends", "strace"]])  # fmt: skip

    def test_declined_setup_installs_nothing(self) -> None:
        with self.hidden(), mock.patch.object(tools, "install") as install, mock.patch.object(whole, "say") as say:
            self.assertIsNone(whole.set_up(mock.Mock(), wanted=False))
        install.assert_not_called()
        said = " ".join(call.args[0] for call in say.call_args_list)
        self.assertIn("SETUP=no: nothing is installed", said)

    def test_what_the_build_needs_is_installed_before_the_build(self) -> None:
        with (
            mock.patch.object(tools, "missing", return_value=tools.NEEDS[:3]),
            mock.patch.object(tools, "can_install", return_value=True),
            mock.patch.object(tools, "install") as install,
            mock.patch.object(whole, "say"),
        ):
            pool = mock.Mock()
            whole.set_up(pool, wanted=True)
        self.assertEqual([need.name for need in install.call_args.args[0]], ["cc"])
        self.assertEqual([need.name for need in pool.submit.call_args.args[1]], ["python venv", "valgrind"])

    def test_root_that_may_not_mount_installs_all_the_same(self) -> None:
        with mock.patch.object(os, "geteuid", return_value=0), mock.patch.object(tools, "is_root", return_value=False):
            self.assertEqual(tools.as_root(), [])

    def test_an_unknown_answer_is_refused(self) -> None:
        for name in ("SETUP", "AGAIN"):
            with (
                mock.patch.dict(os.environ, {name: "maybe"}),
                mock.patch("sys.argv", ["test.py"]),
                mock.patch("sys.stderr"),
                self.assertRaises(SystemExit) as stopped,
            ):
                whole.main()
            self.assertEqual(stopped.exception.code, 2)


class PhasesTogether(unittest.TestCase):
    def test_a_phase_that_fails_is_said_and_leaves_the_others_to_go_on(self) -> None:
        def fails() -> None:
            raise whole.Failed("no")

        phases = whole.Phases()
        with mock.patch.object(whole, "say"):
            self.assertEqual([phases.run("first", fails), phases.run("second", lambda: 2)], [None, 2])
        self.assertEqual(phases.failed, ["first: no"])
        self.assertEqual([name for _, _, name in phases.seconds], ["first", "second"])


class Site(unittest.TestCase):
    """The site of the pages: what a page links, and links that lead nowhere."""

    def page(self, text: str) -> list[str]:
        """The targets of a page `docs/a.md` with this text."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(build_docs, "ROOT", Path(folder)):
            (Path(folder) / "docs").mkdir()
            (Path(folder) / "docs/a.md").write_text(text)
            return [str(target) for target in build_docs.targets(build_docs.PurePosixPath("docs/a.md"))]

    def test_links_count_from_their_page_and_not_in_code(self):
        text = '[b](b.md#x) [c](../C.md) [w](https://x.org) `[d](d.md)`\n```\n[e](e.md)\n```\n<img src="p.svg">'
        self.assertEqual(self.page(text), ["docs/b.md", "C.md", "docs/p.svg"])

    def test_a_link_without_a_target_and_one_without_a_name_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "b.html").write_text('<h1 id="there">B</h1>')
            links = ["b.html", "b.html#there", "b.html#gone", "gone.html", "https://x.org"]
            (Path(folder) / "a.html").write_text("".join(f'<a href="{link}">x</a>' for link in links))
            count, bad = build_docs.broken(Path(folder))
        self.assertEqual((count, sorted(bad)), (4, ["a.html: b.html#gone", "a.html: gone.html"]))

    def test_every_page_is_listed(self):
        listed = build_docs.targets(build_docs.SUMMARY)
        pages = {page for page in build_docs.tracked("docs/*.md") if page != build_docs.SUMMARY}
        self.assertEqual(pages - set(listed), set())


class ShowSeconds(unittest.TestCase):
    SCRIPT = Path(__file__).with_name("show_seconds.sh")

    def on_a_terminal(self, command: str) -> tuple[int, str]:
        """Exit status of a shell command under the script, and what its terminal showed."""
        ours, its = pty.openpty()
        status = subprocess.call([self.SCRIPT, "sh", "-c", command], stderr=its)
        os.close(its)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass  # the terminal's other side is closed
        os.close(ours)
        return status, shown.decode()

    def test_a_terminal_shows_seconds_while_a_command_is_silent(self) -> None:
        status, shown = self.on_a_terminal("sleep 2.5; exit 7")
        self.assertEqual(status, 7)
        self.assertIn("\r  1s\r", shown)
        self.assertIn("\r  2s\r", shown)

    def test_nothing_is_added_where_there_is_no_terminal(self) -> None:
        command = [self.SCRIPT, "sh", "-c", "sleep 1.5; echo built >&2; exit 3"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (3, "built\n"))


class Installation(unittest.TestCase):
    def test_uninstall_removes_each_file_that_install_made_and_no_other(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root, program = Path(folder) / "root", Path(folder) / "waykeeper"
            program.write_text('#!/bin/sh\n[ "$1" != man ] || touch "$3/waykeeper.1" "$3/waykeeper-daemon.1"\n')
            program.chmod(0o755)
            words = ["make", f"DESTDIR={root}", f"PROGRAM={program}"]

            def files() -> set[str]:
                return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

            subprocess.run([*words, "install"], cwd=run_tests.ROOT, check=True, capture_output=True)
            self.assertIn("usr/share/man/man1/waykeeper-daemon.1", files())
            (root / "etc/waykeeper").mkdir(parents=True)
            (root / "etc/waykeeper/waykeeper.toml").touch()
            (root / "usr/share/man/man1/other.1").touch()
            subprocess.run([*words, "uninstall"], cwd=run_tests.ROOT, check=True, capture_output=True)
            self.assertEqual(files(), {"etc/waykeeper/waykeeper.toml", "usr/share/man/man1/other.1"})

    def test_uninstall_removes_nothing_where_a_knob_cannot_be_restored(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "bin/waykeeper"
            program.parent.mkdir()
            # The first in PATH: no unit of this machine is touched.
            for own, text in ((program, "[ $1 != restore ]"), (program.with_name("systemctl"), "true")):
                own.write_text(f"#!/bin/sh\n{text}\n")
                own.chmod(0o755)
            words = ["make", f"PREFIX={folder}", "uninstall"]
            done = subprocess.run(words, cwd=run_tests.ROOT, capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("knobs are not as they were found", done.stderr)
            self.assertTrue(program.exists())


if __name__ == "__main__":
    unittest.main()
