"""Installs each package in a clean root with its users' own tool, runs the main job there, upgrades and removes it.

    python3 -m packages.check              # builds what is missing, then checks all
    python3 -m packages.check deb          # one package

One line per check, then `N passed, N failed`; exit status 1 on any failure. Needs Debian, root and `/dev/fuse`.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from clients.testbed import checks
from packages import build, program
from packages.checks_of import deb, image, rpm, wheel

CHECKS = {"deb": deb.check, "rpm": rpm.check, "wheel": wheel.check, "image": image.check}
"""The checks of each package."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(CHECKS)} (default: all)")
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.kinds if kind not in CHECKS]
    if unknown:
        parser.error(f"no package is called {unknown[0]!r}; known are {', '.join(CHECKS)}")
    program.OUT.mkdir(parents=True, exist_ok=True)

    def run(report: checks.Report) -> None:
        for kind in arguments.kinds or CHECKS:
            path = build.KINDS[kind](program.OUT)
            report.client(kind, path.name)
            report.check(f"{kind}: packed again, it has the same bytes", partial(packs_the_same, kind, path))
            CHECKS[kind](report, path)

    return checks.main(run, [])


def packs_the_same(kind: str, path: Path) -> None:
    """Packs the same program a second time."""
    second = program.OUT / "second"
    second.mkdir(exist_ok=True)
    again = build.KINDS[kind](second)
    if again.read_bytes() != path.read_bytes():
        raise checks.Failed(f"{again} has other bytes than {path}")


if __name__ == "__main__":
    sys.exit(main())
