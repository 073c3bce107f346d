"""Builds all test programs of the workspace and runs several of them at a time; `make test-rust` runs it.

`cargo test` runs one test program after the other. Some of ours compute for a minute, others wait for processes, guests and
clocks: side by side they take two thirds of the time. Each runs as cargo would run it, in its package's folder. The output
of a program is shown when it fails. A test that lacks a tool or a privilege ends with `not run: needs NAME`; where NAME is
missing on this machine (`tools.py` looks), the test counts as not run, elsewhere as failed. It knows cargo and libtest, and
which programs run longest; it must not know any test.

    python3 scripts/run_tests.py            # all
    python3 scripts/run_tests.py --jobs 1   # one program at a time
    python3 scripts/run_tests.py --long     # all, in their long form
    python3 scripts/run_tests.py --again    # also those that passed with the same files (passed.py)

A program is run as soon as cargo has built it, one at a time until all are built: rustc leaves a core idle now and then. The
seconds of each test are written to `target/test-times.tsv`, and the slowest are listed at the end.

Exit status: 0 all passed, 1 a test failed or the build did, 3 the rest passed but tests were not run.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import tools
from passed import Passed

ROOT = Path(__file__).resolve().parent.parent

JOBS = (os.cpu_count() or 1) + 1
"""How many programs run at a time: one more than there are cores, since most wait for processes and clocks now and then.

With twice as many as cores they took 610 CPU seconds instead of 585: they drive each other out of the caches.
"""

MOST_SECONDS = 1200
"""Longest that one program may take before it is ended and called failed."""

MOST_SECONDS_LONG = 4 * 3600
"""The same in the long form."""

KEPT = ROOT / "target/tests-passed.json"
"""Where `passed.py` keeps what has passed."""

LONG = "TEST_LONG"
"""The variable by which a test knows that it is to run in its long form: more seeds, more inputs, every fault round."""

TIMES = ROOT / "target/test-times.tsv"
"""Where the seconds of each test are kept: seconds, program, test."""

TIMED = re.compile(r"^test (\S+).* <(\d+\.\d+)s>$", re.MULTILINE)
"""A test with its seconds, in libtest's output with --report-time."""

SLOWEST = 10
"""How many of the slowest tests are listed."""

NOT_RUN = re.compile(r"not run: needs ([^;:\n]+)")
"""What a test says that cannot run here; several requirements are joined by `and`."""


@dataclass(frozen=True)
class Program:
    """A test program: its package's folder by name, what is tested, the file, the folder it runs in."""

    package: str
    target: str
    executable: Path
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.package} {self.target}"

    @property
    def starts(self) -> int:
        """How many programs of its package its tests may start, which cargo may build after them."""
        if self.target.startswith("("):
            return 0
        return (self.folder / "src/main.rs").exists() + len(list((self.folder / "src/bin").glob("*")))


@dataclass(frozen=True)
class Outcome:
    """How one program ended. `not_run` has the tests that lacked a requirement, by name, and what each lacked."""

    program: Program
    status: int
    passed: int
    ignored: int
    seconds: float
    output: str
    failed: list[str] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    """Seconds by test, as libtest measured them."""

    @property
    def good(self) -> bool:
        """Every test passed, or lacked something that is missing here."""
        return not self.failed


@dataclass(frozen=True)
class Summary:
    """All programs together. `not_run` is keyed by `package target test`."""

    passed: int
    programs: int
    seconds: float
    failed: list[str]
    not_run: dict[str, str]
    times: dict[str, float]
    """Seconds by `package target test`."""
    unchanged: int
    """Programs that were not run, because they had passed with the same files."""


@dataclass(frozen=True)
class Products:
    """What the Python package's tests use: its extension, and Waykeeper itself."""

    extension: Path
    waykeeper: Path


@dataclass(frozen=True)
class Built:
    """What cargo built."""

    programs: list[Program]
    products: Products


class Queue:
    """Programs to run, the highest rank first, while cargo may still build more."""

    def __init__(self) -> None:
        self.waiting: list[Program] = []
        self.changed = threading.Condition()
        self.complete = False

    @classmethod
    def of(cls, programs: list[Program]) -> Queue:
        """One to which no program is added."""
        queue = cls()
        queue.waiting, queue.complete = list(programs), True
        return queue

    def put(self, program: Program) -> None:
        """Adds a program that is built."""
        with self.changed:
            self.waiting.append(program)
            self.changed.notify_all()

    def close(self, keeps: bool = True) -> None:
        """No more programs come; unless it `keeps` them, those that wait are not run either."""
        with self.changed:
            self.complete = True
            if not keeps:
                self.waiting.clear()
            self.changed.notify_all()

    def take(self, beside_the_build: bool) -> Program | None:
        """The next program, waited for; none when none is left. Unless `beside_the_build`, the first comes when all are built."""
        with self.changed:
            while True:
                if self.waiting and (self.complete or beside_the_build):
                    self.waiting.remove(first := min(self.waiting, key=rank))
                    return first
                if self.complete:
                    return None
                self.changed.wait()


def build(
    cargo: str,
    found: Callable[[Program], None] = lambda _: None,
    made: Callable[[Products], None] = lambda _: None,
) -> Built:
    """Builds, with cargo's own messages on the terminal, and hands on each test program and the products once what they run is built.

    One call for tests, programs and the Python extension, so that each crate is compiled once with one set of features. Examples
    are not built: no test runs one, and `make lint` compiles them. Raises CalledProcessError if the build fails.
    """
    messages = ["--message-format", "json-render-diagnostics"]
    command = [cargo, "build", "--workspace", "--locked", "--lib", "--bins", "--tests", *messages]
    programs, extension, waykeeper, products = [], None, None, None
    built: Counter[Path] = Counter()
    waiting: list[Program] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            message = json.loads(line)
            if message.get("reason") != "compiler-artifact":
                continue
            target, folder = message["target"], Path(message["manifest_path"]).parent
            if target["kind"] == ["cdylib"]:
                extension = Path(message["filenames"][0])
            elif message["profile"]["test"] and message["executable"]:
                name = target["name"] if target["kind"] == ["test"] else f"({target['kind'][0]})"
                programs.append(Program(folder.name, name, Path(message["executable"]), folder))
                waiting.append(programs[-1])
            elif target["kind"] == ["bin"]:
                built[folder] += 1
                if target["name"] == "waykeeper":
                    waykeeper = Path(message["executable"])
            for program in [one for one in waiting if built[one.folder] >= one.starts]:
                waiting.remove(program)
                found(program)
            if products is None and extension is not None and waykeeper is not None:
                made(products := Products(extension, waykeeper))
    if running.returncode != 0:
        raise subprocess.CalledProcessError(running.returncode, command)
    # A program of the package that is not built in this form is waited for in vain: its tests run all the same, and say what they miss.
    for program in waiting:
        found(program)
    if not programs or products is None:
        sys.exit("tests: cargo built no test program, no Python extension or no waykeeper")
    return Built(programs, products)


def sorted_out(output: str, missing: set[str]) -> tuple[list[str], dict[str, str]]:
    """The failed tests of libtest's output: those that failed, and those that lacked what is missing here."""
    listed = re.search(r"^failures:\n((?:    \S.*\n)+)\s*\ntest result", output, re.MULTILINE)
    names = [line.strip() for line in listed[1].splitlines()] if listed else []
    failed, not_run = [], {}
    for name in names:
        told = re.search(rf"^---- {re.escape(name)} stdout ----\n(.*?)(?=^---- |^failures:\n)", output, re.M | re.S)
        needs = NOT_RUN.search(told[1]) if told else None
        lacking = [need for need in re.split(r" and |, ", needs[1].strip()) if need in missing] if needs else []
        if lacking:
            not_run[name] = ", ".join(lacking)
        else:
            failed.append(name)
    return failed, not_run


def run(program: Program, threads: int, missing: set[str], long: bool = False) -> Outcome:
    """Runs one program to its end."""
    threads *= 2 if program.name in WAITING else 1
    environment = {
        **os.environ,
        **({LONG: "1"} if long else {}),
        # libtest reports the seconds of each test only where unstable options are allowed.
        "RUSTC_BOOTSTRAP": "1",
        "CARGO_MANIFEST_DIR": str(program.folder),
        "RUST_TEST_THREADS": os.environ.get("RUST_TEST_THREADS", str(threads)),
    }
    words = [program.executable, "-Z", "unstable-options", "--report-time"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            words, cwd=program.folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=MOST_SECONDS_LONG if long else MOST_SECONDS,
        )  # fmt: skip
        status, output = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        status, output = 124, (error.stdout or b"").decode(errors="replace") + f"\nnot done after {MOST_SECONDS} s\n"
    counts = re.search(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", output, re.MULTILINE)
    passed, wrong, ignored = (int(count) for count in counts.groups()) if counts else (0, 0, 0)
    failed, not_run = sorted_out(output, missing) if counts else ([], {})
    if counts is None and status == 0:
        status, output = 1, output + "\nended with status 0, but without libtest's last line\n"
    # libtest ends with 0 or 101; anything else, or a count that does not fit its list, is the program's own failure.
    if counts is None or len(failed) + len(not_run) != wrong or status != (101 if wrong else 0):
        failed = failed or ["the program itself"]
    times = {name: float(seconds) for name, seconds in TIMED.findall(output)}
    return Outcome(program, status, passed, ignored, time.monotonic() - began, output, failed, not_run, times)


WAITING = ("cli suite",)
"""Programs whose tests wait for processes and clocks most of the time: they run twice as many at a time as others."""

READING_SOURCES = ("cli suite",)
"""Programs whose tests read the Rust sources of other packages."""

LONGEST = ("machine suite", "cli suite", "linux-host suite", "service simulated", "lab suite")
"""The programs that run longest, first: some compute, some wait, and a late start of one would be waited for. Others by size."""


def rank(program: Program) -> tuple[int, int]:
    """Where a program comes in the order of starts."""
    place = LONGEST.index(program.name) if program.name in LONGEST else len(LONGEST)
    return place, -program.executable.stat().st_size


def run_all(
    queue: Queue,
    jobs: int,
    missing: set[str],
    say: Callable[[str], None] = print,
    long: bool = False,
    passed: Passed | None = None,
) -> Summary:
    """Runs the programs, several at a time, in the order of `rank`; with `passed`, only those that have not passed as they are."""
    began, outcomes, writing, threads = time.monotonic(), [], threading.Lock(), os.cpu_count() or 1
    unchanged: list[str] = []

    def one(program: Program) -> None:
        name = f"{program.name}{' --long' if long else ''}"
        key = None
        if passed is not None:
            key = passed.key([program.executable], None if program.name in READING_SOURCES else program.folder)
            if passed.has(name, key):
                unchanged.append(name)
                return
        # Where tests may leave files, CARGO_TARGET_TMPDIR: cargo makes the folder when it runs tests itself.
        (program.executable.parents[2] / "tmp").mkdir(exist_ok=True)
        outcome = run(program, threads, missing, long)
        with writing:
            outcomes.append(outcome)
            if passed is not None:
                passed.note(name, key if outcome.good and not outcome.not_run else None)
            word = "ok" if outcome.good else "FAILED"
            more = f", {outcome.ignored} ignored" if outcome.ignored else ""
            more += f", {len(outcome.not_run)} NOT RUN" if outcome.not_run else ""
            say(f"{word:6} {outcome.seconds:6.1f} s  {program.name}: {outcome.passed} passed{more}")
            if not outcome.good:
                say(f"{outcome.output}\n{program.executable}: status {outcome.status}")

    def work(job: int) -> None:
        while (program := queue.take(beside_the_build=job == 0)) is not None:
            one(program)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))
    failed = [f"{outcome.program.name} {name}" for outcome in outcomes for name in outcome.failed]
    not_run = {f"{outcome.program.name} {name}": why for outcome in outcomes for name, why in outcome.not_run.items()}
    times = {f"{outcome.program.name} {name}": one for outcome in outcomes for name, one in outcome.times.items()}
    return Summary(
        passed=sum(outcome.passed for outcome in outcomes),
        programs=len(outcomes),
        seconds=time.monotonic() - began,
        failed=sorted(failed),
        not_run=dict(sorted(not_run.items())),
        times=times,
        unchanged=len(unchanged),
    )


def slowest(times: dict[str, float]) -> list[str]:
    """Lines for the slowest tests, the slowest first."""
    ranked = sorted(times.items(), key=lambda item: -item[1])[:SLOWEST]
    return [f"{seconds:7.1f} s  {name}" for name, seconds in ranked]


def keep_times(times: dict[str, float]) -> None:
    """Writes the seconds of each test, the slowest first; where nothing ran, what is written stays."""
    if not times:
        return
    ranked = sorted(times.items(), key=lambda item: -item[1])
    TIMES.parent.mkdir(exist_ok=True)
    TIMES.write_text("".join(f"{seconds:.3f}\t{name}\n" for name, seconds in ranked), encoding="utf-8")


def report(summary: Summary, say: Callable[[str], None] = print) -> int:
    """Says what was not run and what failed, and gives the exit status."""
    if summary.not_run:
        say(f"tests: {len(summary.not_run)} not run, for lack of a requirement:")
        width = max(map(len, summary.not_run))
        for name, why in summary.not_run.items():
            say(f"  {name:{width}}  needs {why}")
    say(
        f"tests: {summary.passed} passed, {len(summary.failed)} failed, {len(summary.not_run)} not run "
        f"in {summary.programs} programs, {summary.seconds:.0f} s"
    )
    if summary.unchanged:
        say(f"tests: {summary.unchanged} programs have passed as they are, and were not run again")
    if summary.failed:
        say(f"tests: failed: {', '.join(summary.failed)}")
        return 1
    return tools.MISSING_STATUS if summary.not_run else 0


def examples(cargo: str) -> int:
    """Examples in documentation are cargo's to build and run."""
    return subprocess.run([cargo, "test", "--workspace", "--locked", "--doc", "--quiet"], cwd=ROOT).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS, help="programs at a time (default: %(default)s)")
    parser.add_argument("--long", action="store_true", help="every test in its long form (hours)")
    parser.add_argument("--again", action="store_true", help="also run what has passed with the same files")
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"), help="cargo (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: at least 1 program at a time")
    os.environ["PATH"] = tools.search_path()
    missing = {need.name for need in tools.missing()}

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        programs = build(arguments.cargo).programs
    except subprocess.CalledProcessError:
        return 1
    passed = None if arguments.again else Passed(ROOT, KEPT, missing)
    with tools.folder_in_memory():
        summary = run_all(Queue.of(programs), arguments.jobs, missing, say, arguments.long, passed)
    status = report(summary, say)
    keep_times(summary.times)
    say("tests: the slowest:\n" + "\n".join(slowest(summary.times)))
    if status == 1 or examples(arguments.cargo) != 0:
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
