"""Runs the checks with the real programs of a node. `make test-fleet` calls it.

It builds our program, and makes the environment of Python that the client of containerd needs. This module must not know the checks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from clients.testbed import tools

GRPC = "grpcio==1.85.3"

QUICK_PODS = 20


def main() -> int:
    """Runs the checks; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m fleet.run", description="Run the daemon beside a real containerd."
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PODS} pods instead of 200")
    arguments = parser.parse_args()
    if "WAYKEEPER" not in os.environ:
        build = ["cargo", "build", "--quiet", "--locked", "-p", "waykeeper-cli"]
        subprocess.run(build, cwd=tools.REPOSITORY, check=True)
    environment = {**os.environ, "WAYKEEPER": str(tools.waykeeper())}
    if arguments.quick:
        environment["FLEET_PODS"] = str(QUICK_PODS)
    done = subprocess.run(
        [tools.python(GRPC), "-m", "fleet.nri"], cwd=tools.REPOSITORY, env=environment, stdin=subprocess.DEVNULL
    )
    return done.returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
