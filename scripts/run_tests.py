"""Builds all test programs of the workspace and runs several of them at a time; `make test-rust` runs it.

`cargo test` runs one test program after the other. Of ours some compute for a minute and some wait for processes,
guests and clocks: side by side they take two thirds of the time. Each runs as cargo would run it, in its package's folder.
What one wrote is shown when it failed. It knows cargo; it must not know any test.

    python3 scripts/run_tests.py            # all
    python3 scripts/run_tests.py --jobs 1   # one program at a time
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MOST_SECONDS = 1200
"""Longest that one program may take before it is ended and called failed."""


@dataclass(frozen=True)
class Program:
    """A test program: its package, what is tested, the file, the folder it expects to stand in."""

    package: str
    target: str
    executable: Path
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.package.removeprefix('waykeeper-')} {self.target}"


@dataclass(frozen=True)
class Outcome:
    """What came of one program; `passed` and the rest are libtest's own counts."""

    program: Program
    status: int
    passed: int
    ignored: int
    seconds: float
    output: str


def build(cargo: str) -> list[Program]:
    """Builds, with cargo's own messages on the terminal. Exits with cargo's status if that fails."""
    command = [cargo, "test", "--workspace", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    programs = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["profile"]["test"] or not message["executable"]:
            continue
        target, folder = message["target"], Path(message["manifest_path"]).parent
        package = re.sub(r".*[/#]", "", message["package_id"].split("@")[0]) or folder.name
        programs.append(Program(package, target["name"] if target["kind"] == ["test"] else f"({target['kind'][0]})",
                                Path(message["executable"]), folder))  # fmt: skip
    if not programs:
        sys.exit("tests: cargo built no test program")
    return programs


def run(program: Program, threads: int) -> Outcome:
    """Runs one program to its end."""
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
    counts = re.search(r"^test result: .*?(\d+) passed; \d+ failed; (\d+) ignored", output, re.MULTILINE)
    passed, ignored = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    if counts is None and status == 0:
        status, output = 1, output + "\nended with status 0, but without libtest's last line\n"
    return Outcome(program, status, passed, ignored, time.monotonic() - began, output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help="programs at a time (default: the cores, %(default)s)")
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"), help="cargo (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: at least 1 program at a time")
    programs = build(arguments.cargo)
    # Where tests may leave files, CARGO_TARGET_TMPDIR: cargo makes the folder when it runs tests itself.
    (programs[0].executable.parents[2] / "tmp").mkdir(exist_ok=True)
    began, outcomes, writing = time.monotonic(), [], threading.Lock()

    def one(program: Program) -> None:
        outcome = run(program, cores)
        with writing:
            outcomes.append(outcome)
            word = "ok" if outcome.status == 0 else "FAILED"
            ignored = f", {outcome.ignored} ignored" if outcome.ignored else ""
            print(f"{word:6} {outcome.seconds:6.1f} s  {program.name}: {outcome.passed} passed{ignored}", flush=True)
            if outcome.status != 0:
                print(f"{outcome.output}\n{program.executable}: status {outcome.status}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, programs))
    failed = [outcome.program.name for outcome in outcomes if outcome.status != 0]
    passed = sum(outcome.passed for outcome in outcomes)
    print(f"tests: {passed} passed in {len(outcomes)} programs, {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"tests: failed: {', '.join(sorted(failed))}", flush=True)
        return 1
    # Examples in documentation are cargo's to build and run.
    return subprocess.run([arguments.cargo, "test", "--workspace", "--locked", "--doc", "--quiet"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
