"""Runs the clients of the virtual host and prints per client: name, version, checks, a count; then the sum. `make test-clients` calls it.

A client is a script of this folder that prints one line per check and a closing line `N passed, N failed`, and ends with 0 or 1. This
module must not know what a client checks.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from clients.testbed import checks, tools

FOLDER = Path(__file__).resolve().parent

SLOW = "CLIENTS_SLOW"
"""Environment variable that is `no` to leave out the checks that take minutes."""


def names() -> list[str]:
    """The clients in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "run"))


def run(name: str, slow: bool) -> tuple[int, int, int]:
    """Runs a client and prints its output as it comes; returns the checks that passed, failed and are not possible."""
    begun = time.monotonic()
    counts, last = (0, 1, 0), ""
    with subprocess.Popen(
        [sys.executable, "-m", f"clients.{name}"],
        cwd=tools.REPOSITORY,
        env={**os.environ, SLOW: "yes" if slow else "no", "WAYKEEPER": str(tools.waykeeper())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for line in process.stdout or []:
                last = line.strip() or last
                print(f"{name}: {line}", end="", flush=True)
            status = process.wait()
        except BaseException:
            process.terminate()
            raise
    closing = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) not possible)?", last)
    if closing:
        counts = (int(closing[1]), int(closing[2]), int(closing[3] or 0))
    if not closing or (status == 0) != (counts[1] == 0):
        print(f"{name}: FAILED: it ended with status {status} after `{last}`", flush=True)
        counts = (counts[0], max(counts[1], 1), counts[2])
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return counts


def main() -> int:
    """Runs the clients; the exit status is 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python3 -m clients.run", description="Run clients of the virtual host.")
    parser.add_argument("--only", action="append", choices=names(), help="run only this client (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="leave out the checks that take minutes")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, checks.interrupt)
    begun = time.monotonic()
    if "WAYKEEPER" not in os.environ:
        subprocess.run(
            ["cargo", "build", "--quiet", "--locked", "-p", "waykeeper-cli"], cwd=tools.REPOSITORY, check=True
        )
    sums = [run(name, not arguments.quick) for name in arguments.only or names()]
    passed, failed, impossible = (sum(column) for column in zip(*sums))
    print(f"clients: {impossible} not possible, for the reasons in docs/vhost.md; {time.monotonic() - begun:.0f} s")
    print(f"clients: {passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
