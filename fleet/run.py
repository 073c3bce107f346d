"""Runs the checks with the real programs of a cluster and of a node. `make test-fleet` calls it.

It builds our program, and makes the environment of Python that the checks need. This module must not know the checks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from clients.testbed import tools

PACKAGES = ("grpcio==1.85.3", "PyYAML==6.0.3")
SWEEP_PACKAGES = (
    "dask==2026.8.0",
    "distributed==2026.8.0",
    "dask-jobqueue==0.9.0",
    "pyarrow==26.0.1",
    "tomli-w",
    "tqdm",
)

PARTS = ("chart", "rights", "installed", "nri", "sweeps")
"""The modules with checks, in their order."""

QUICK_PODS = 20
QUICK_NODES = 50


def main() -> int:
    """Runs the checks; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m fleet.run",
        description="Run the chart on a real cluster, and the daemon beside a real containerd.",
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_NODES} nodes and {QUICK_PODS} pods instead of 1000 and 200"
    )
    parser.add_argument("--only", choices=PARTS, help="run one part")
    arguments = parser.parse_args()
    if "WAYKEEPER" not in os.environ:
        build = ["cargo", "build", "--quiet", "--locked", "-p", "waykeeper-cli"]
        subprocess.run(build, cwd=tools.REPOSITORY, check=True)
    environment = {**os.environ, "WAYKEEPER": str(tools.waykeeper())}
    if arguments.quick:
        environment |= {"FLEET_NODES": str(QUICK_NODES), "FLEET_PODS": str(QUICK_PODS)}
    failed = False
    for part in [arguments.only] if arguments.only else PARTS:
        python = tools.python(*(SWEEP_PACKAGES if part == "sweeps" else PACKAGES))
        words = [python, "-m", f"fleet.{part}"]
        done = subprocess.run(words, cwd=tools.REPOSITORY, env=environment, stdin=subprocess.DEVNULL)
        failed = failed or done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
