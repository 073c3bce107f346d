"""Runs the checks with the real programs of a cluster and of a node. `make test-fleet` calls it, and `make test` in its short form.

It builds our program unless it is given one, and makes the environments of Python. This module must not know the checks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

from clients.testbed import tools
from clients.testbed.checks import Failed
from fleet import programs
from packages import program

PACKAGES = ("grpcio==1.85.3", "PyYAML==6.0.3")
SWEEP_PACKAGES = (
    "dask==2026.8.0",
    "distributed==2026.8.0",
    "dask-jobqueue==0.9.0",
    "jinja2==3.1.6",
    "matplotlib==3.11.2",
    "pyarrow==26.0.1",
    "tomli-w",
    "tqdm",
)

NODE = (programs.containerd, programs.runc, programs.busybox)
CLUSTER = (programs.etcd, programs.kubernetes, programs.kwok, programs.definitions, programs.openssl)

PARTS: dict[str, tuple[Callable[[], object], ...]] = {
    "chart": (programs.helm, programs.kustomize),
    "rights": (programs.helm, *NODE),
    "installed": (programs.helm, *CLUSTER),
    "nri": NODE,
    "sweeps": (programs.slurm,),
}
"""The modules with checks, in their order, and the programs that each needs."""

QUICK = {"FLEET_NODES": "50", "FLEET_PODS": "20", "FLEET_SEEDS": "6"}
"""Sizes of the short form: all parts together took 4 minutes of two free cores."""


def main() -> int:
    """Runs the checks; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m fleet.run",
        description="Run the chart on a real cluster, and the daemon beside a real containerd.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer nodes, pods and seeds, so that all parts take some minutes"
    )
    parser.add_argument("--only", choices=PARTS, help="run one part")
    parser.add_argument("--packaged", action="store_true", help="with the program and the wheel of `make packages`")
    parser.add_argument(
        "--cached",
        action="store_true",
        help="leave out parts whose programs, or packages of Python, cannot be had at once",
    )
    arguments = parser.parse_args()
    environment = dict(os.environ)
    if arguments.packaged:
        wheels = list(program.OUT.glob(f"waykeeper-{program.version()}-*.whl"))
        if len(wheels) != 1 or not program.built().exists():
            parser.error(f"--packaged: {program.OUT} has not one wheel and its program; make packages builds them")
        environment |= {"WAYKEEPER": str(program.built()), "WAYKEEPER_WHEEL": str(wheels[0])}
    elif "WAYKEEPER" not in environment:
        build = ["cargo", "build", "--quiet", "--locked", "-p", "waykeeper-cli"]
        subprocess.run(build, cwd=tools.REPOSITORY, check=True)
    environment = {"WAYKEEPER": str(tools.waykeeper()), **(QUICK if arguments.quick else {}), **environment}
    failed = False
    for part in [arguments.only] if arguments.only else PARTS:
        if arguments.cached and (why := missing(part)):
            print(f"left out: {part}: {why}; `make test-fleet` brings it", flush=True)
            continue
        try:
            python = tools.python(*(SWEEP_PACKAGES if part == "sweeps" else PACKAGES))
        except Failed as error:
            print(f"{'left out' if arguments.cached else 'FAILED'}: {part}: {error}", flush=True)
            failed = failed or not arguments.cached
            continue
        words = [python, "-m", f"fleet.{part}"]
        done = subprocess.run(words, cwd=tools.REPOSITORY, env=environment, stdin=subprocess.DEVNULL)
        failed = failed or done.returncode != 0
    return int(failed)


def missing(part: str) -> str | None:
    """The first program of a part that is not there; nothing is brought."""
    try:
        with tools.only_what_is_here():
            for bring in PARTS[part]:
                bring()
    except tools.Missing as error:
        return str(error)
    return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
