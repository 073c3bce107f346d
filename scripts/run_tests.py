"""Builds all test programs of the workspace and runs several of them at a time; `make test-rust` runs it.

`cargo test` runs one test program after the other. Some of ours compute for a minute, others wait for processes, guests and
clocks: side by side they take two thirds of the time. Each runs as cargo would run it, in its package's folder. The output
of a program is shown when it fails. A test that lacks a tool or a privilege ends with `not run: needs NAME`; where NAME is
missing on this machine (`tools.py` looks), the test counts as not run, elsewhere as failed. It knows cargo and libtest, and
which programs run longest; it must not know any test.

    python3 scripts/run_tests.py            # all
    python3 scripts/run_tests.py --jobs 1   # one program at a time

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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent

MOST_SECONDS = 1200
"""Longest that one program may take before it is ended and called failed."""

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


def build(cargo: str) -> list[Program]:
    """Builds, with cargo's own messages on the terminal. Raises CalledProcessError if that fails.

    Examples are not built: no test runs one, and `make lint` compiles them.
    """
    messages = ["--message-format", "json-render-diagnostics"]
    command = [cargo, "test", "--workspace", "--locked", "--no-run", "--tests", *messages]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    programs = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["profile"]["test"] or not message["executable"]:
            continue
        target, folder = message["target"], Path(message["manifest_path"]).parent
        programs.append(Program(folder.name, target["name"] if target["kind"] == ["test"] else f"({target['kind'][0]})",
                                Path(message["executable"]), folder))  # fmt: skip
    if not programs:
        sys.exit("tests: cargo built no test program")
    return programs


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


def run(program: Program, threads: int, missing: set[str]) -> Outcome:
    """Runs one program to its end."""
    threads *= 2 if program.name in WAITING else 1
    environment = {
        **os.environ,
        "CARGO_MANIFEST_DIR": str(program.folder),
        "RUST_TEST_THREADS": os.environ.get("RUST_TEST_THREADS", str(threads)),
    }
    began = time.monotonic()
    try:
        done = subprocess.run(
            [program.executable], cwd=program.folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=MOST_SECONDS,
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
    return Outcome(program, status, passed, ignored, time.monotonic() - began, output, failed, not_run)


WAITING = ("cli suite",)
"""Programs whose tests wait for processes and clocks most of the time: they run twice as many at a time as others."""

LONGEST = ("machine suite", "cli suite", "linux-host suite", "service simulated", "lab suite")
"""The programs that run longest, first: some compute, some wait, and a late start of one would be waited for. Others by size."""


def rank(program: Program) -> tuple[int, int]:
    """Where a program comes in the order of starts."""
    place = LONGEST.index(program.name) if program.name in LONGEST else len(LONGEST)
    return place, -program.executable.stat().st_size


def run_all(programs: list[Program], jobs: int, missing: set[str], say: Callable[[str], None] = print) -> Summary:
    """Runs the programs, several at a time, in the order of `rank`."""
    # Where tests may leave files, CARGO_TARGET_TMPDIR: cargo makes the folder when it runs tests itself.
    (programs[0].executable.parents[2] / "tmp").mkdir(exist_ok=True)
    began, outcomes, writing, threads = time.monotonic(), [], threading.Lock(), os.cpu_count() or 1

    def one(program: Program) -> None:
        outcome = run(program, threads, missing)
        with writing:
            outcomes.append(outcome)
            word = "ok" if outcome.good else "FAILED"
            more = f", {outcome.ignored} ignored" if outcome.ignored else ""
            more += f", {len(outcome.not_run)} NOT RUN" if outcome.not_run else ""
            say(f"{word:6} {outcome.seconds:6.1f} s  {program.name}: {outcome.passed} passed{more}")
            if not outcome.good:
                say(f"{outcome.output}\n{program.executable}: status {outcome.status}")

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, sorted(programs, key=rank)))
    failed = [f"{outcome.program.name} {name}" for outcome in outcomes for name in outcome.failed]
    not_run = {
        f"{outcome.program.name} {name}": why for outcome in outcomes for name, why in outcome.not_run.items()
    }
    passed = sum(outcome.passed for outcome in outcomes)
    return Summary(passed, len(outcomes), time.monotonic() - began, sorted(failed), dict(sorted(not_run.items())))


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
    if summary.failed:
        say(f"tests: failed: {', '.join(summary.failed)}")
        return 1
    return tools.MISSING_STATUS if summary.not_run else 0


def examples(cargo: str) -> int:
    """Examples in documentation are cargo's to build and run."""
    return subprocess.run([cargo, "test", "--workspace", "--locked", "--doc", "--quiet"], cwd=ROOT).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help="programs at a time (default: the cores, %(default)s)")
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"), help="cargo (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: at least 1 program at a time")
    os.environ["PATH"] = tools.search_path()
    missing = {need.name for need in tools.missing()}

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        summary = run_all(build(arguments.cargo), arguments.jobs, missing, say)
    except subprocess.CalledProcessError:
        return 1
    status = report(summary, say)
    if status == 1 or examples(arguments.cargo) != 0:
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
