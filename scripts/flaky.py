"""Runs the tests many times beside other work, and names each that failed at least once; `make flaky N=20` runs it.

Two busy loops take their share of the cores, so that threads and processes come late and in other orders than on a quiet
machine. What `make test` builds is built once. The output of a round in which a test failed is kept in `target/flaky`. It must
not know any test.

    python3 scripts/flaky.py --rounds 20
    python3 scripts/flaky.py --rounds 5 --only rust      # without python/tests

Exit status: 0 every round was green, 1 a test failed at least once or the build did. Ctrl-C ends it with what was found until then.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
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
    failures: Counter[str] = Counter()
    done = 0
    try:
        built = make_test.build(arguments.cargo)
        if arguments.only != "rust":
            why = make_test.environment_for_python(None)
            if why is not None:
                raise make_test.Failed(f"python/tests cannot run: {why}")
            make_test.pack_wheel(built.extension)
            make_test.install_wheel()
        OUT.mkdir(parents=True, exist_ok=True)
        with load():
            for done in range(1, arguments.rounds + 1):
                began = time.monotonic()
                # Beside each other, as `make test` runs them.
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    halves = [] if arguments.only == "python" else [pool.submit(rust_round, built.programs, missing)]
                    halves += [] if arguments.only == "rust" else [pool.submit(python_round)]
                failed = [name for half in halves for name in half.result()[0]]
                output = "\n".join(half.result()[1] for half in halves)
                failures.update(failed)
                if failed:
                    (OUT / f"round-{done}.txt").write_text(output, encoding="utf-8")
                word = "ok" if not failed else f"FAILED: {', '.join(failed)}"
                print(f"round {done:2} of {arguments.rounds}  {time.monotonic() - began:6.0f} s  {word}", flush=True)
    except make_test.Failed as error:
        print(f"flaky: FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        done = max(done - 1, 0)
    print(table(failures, done))
    return 1 if failures or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
