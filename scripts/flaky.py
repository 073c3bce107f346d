"""Runs the tests many times beside other work, and names each that failed at least once; `make flaky N=20` runs it.

Two busy loops take their share of the cores, so that threads and processes come late and in other orders than on a quiet
machine. What `make test` builds is built once. The output of a round in which a test failed is kept in `target/flaky`, and so is what
each round of a commit found: the same call continues until the commit has that many rounds. It must not know any test.

    python3 scripts/flaky.py --rounds 20
    python3 scripts/flaky.py --rounds 5 --only rust      # without python/tests

Exit status: 0 every round was green, 1 a test failed at least once or the build did. Ctrl-C ends it with what was found until then.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import make_test
import run_tests
import tools

OUT = run_tests.ROOT / "target/flaky"

BUSY = 2
"""Busy loops, as many as the cores of the machine on which the tests are to be green."""

FAILED_PYTHON = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
"""A line of pytest's short summary (`-rfE`)."""


@contextmanager
def load() -> Iterator[None]:
    """Other work, as long as the context lasts."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


class Rounds:
    """What each round of this commit found, in a file that is added to; of a tree with changes nothing is kept."""

    def __init__(self, only: str | None) -> None:
        asked = {"cwd": run_tests.ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        commit = subprocess.run(["git", "rev-parse", "HEAD"], **asked)
        changes = subprocess.run(["git", "status", "--porcelain"], **asked)
        is_known = commit.returncode == 0 and changes.stdout == ""
        self.file = OUT / f"{commit.stdout.strip()}{'-' + only if only else ''}.jsonl" if is_known else None
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file and self.file.exists() else []
        self.found: list[list[str]] = [json.loads(line) for line in lines]

    def add(self, failed: list[str]) -> None:
        """Keeps one round."""
        self.found.append(failed)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(failed) + "\n")

    @property
    def failures(self) -> Counter[str]:
        """In how many rounds each test failed."""
        return Counter(name for failed in self.found for name in set(failed))


def rust_round(programs: list[run_tests.Program], missing: set[str]) -> tuple[list[str], str]:
    """The failed tests of one run of all programs, and its output."""
    lines: list[str] = []
    summary = run_tests.run_all(run_tests.Queue.of(programs), run_tests.JOBS, missing, lines.append)
    return summary.failed, "\n".join(lines)


def python_round() -> tuple[list[str], str]:
    """The failed tests of one run of python/tests, and its output."""
    words = [make_test.VENV / "bin/pytest", *make_test.pytest_arguments(long=False), "-rfE"]
    done = subprocess.run(words, cwd=run_tests.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)  # fmt: skip
    failed = FAILED_PYTHON.findall(done.stdout)
    return failed or (["python/tests itself"] if done.returncode else []), done.stdout


Half = Callable[[], tuple[list[str], str]]
"""A part of a round: the tests that failed, and the output."""


def rounds_of(halves: list[Half], count: int) -> Iterator[tuple[tuple[list[str], str], ...]]:
    """The halves of so many rounds, a round when all of it have ended.

    The halves run beside each other, as `make test` runs them. One that has ended begins its next round at once: until the other
    has ended the loops would have its share of the cores.
    """
    lanes = [concurrent.futures.ThreadPoolExecutor(1) for _ in halves]
    try:
        yield from zip(*(lane.map(lambda _, half=half: half(), range(count)) for lane, half in zip(lanes, halves)))
    finally:
        for lane in lanes:
            lane.shutdown(cancel_futures=True)


def table(failures: Counter[str], rounds: int) -> str:
    """A line for each test that failed, the most frequent first, and the verdict."""
    lines = [f"{count:3} of {rounds}  {name}" for name, count in failures.most_common()]
    verdict = f"{rounds} of {rounds} rounds green" if not failures else f"{len(failures)} tests failed at least once"
    return "\n".join([*lines, f"flaky: {verdict}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how many times (default: %(default)s)")
    parser.add_argument("--only", choices=("rust", "python"), help="one half of the tests")
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"), help="cargo (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: at least 1")
    os.environ["PATH"] = tools.search_path()
    missing = {need.name for need in tools.missing()}
    OUT.mkdir(parents=True, exist_ok=True)
    rounds = Rounds(arguments.only)
    if rounds.found:
        print(f"flaky: {len(rounds.found)} rounds of this commit were run before ({rounds.file})", flush=True)
    try:
        built = make_test.build(arguments.cargo)
        if arguments.only != "rust":
            why = make_test.environment_for_python(None)
            if why is not None:
                raise make_test.Failed(f"python/tests cannot run: {why}")
            make_test.pack_wheel(built.products.extension)
            make_test.install_wheel()
        with tools.folder_in_memory(), load():
            halves: list[Half] = [] if arguments.only == "python" else [lambda: rust_round(built.programs, missing)]
            halves += [] if arguments.only == "rust" else [python_round]
            began = time.monotonic()
            for found in rounds_of(halves, arguments.rounds - len(rounds.found)):
                failed = [name for names, _ in found for name in names]
                rounds.add(failed)
                done = len(rounds.found)
                if failed:
                    output = "\n".join(text for _, text in found)
                    (OUT / f"round-{done}.txt").write_text(output, encoding="utf-8")
                word = "ok" if not failed else f"FAILED: {', '.join(failed)}"
                seconds = time.monotonic() - began
                print(
                    f"round {done:2} of {arguments.rounds}, {seconds:6.0f} s after the first began  {word}", flush=True
                )
    except make_test.Failed as error:
        print(f"flaky: FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        pass
    print(table(rounds.failures, len(rounds.found)))
    return 1 if rounds.failures or not rounds.found else 0


if __name__ == "__main__":
    sys.exit(main())
