"""Builds the packages: a Debian package, an RPM, a wheel and a container image.

    python3 -m packages.build                 # all, into target/packages
    python3 -m packages.build deb wheel       # these
    python3 -m packages.build --twice         # also builds all a second time from nothing and compares the bytes

Prints a line for each: its path, its size, its SHA-256. Exit status 1 if one could not be built.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from clients.testbed.checks import Failed
from packages import deb, image, program, rpm, wheel

KINDS: dict[str, Callable[[Path], Path]] = {
    "deb": lambda out: deb.build(program.stage(program.build()), out),
    "rpm": lambda out: rpm.build(program.stage(program.build()), out),
    "wheel": lambda out: wheel.build(program.build(), out),
    "image": lambda out: image.build(program.build("musl"), out),
}
"""How each is built; adding one is a line here and a file."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("--out", type=Path, default=program.OUT, help="folder for the packages (default: %(default)s)")
    parser.add_argument("--twice", action="store_true", help="build twice and compare the bytes")
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no package is called {unknown[0]!r}; known are {', '.join(KINDS)}")
    kinds, out = arguments.kinds or list(KINDS), arguments.out.absolute()
    try:
        first = build_all(kinds, out)
        if not arguments.twice:
            return 0
        for folder in program.OUT.glob("build-*"):
            shutil.rmtree(folder)
        second = build_all(kinds, out / "second")
    except (Failed, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    differ = [kind for kind in kinds if first[kind] != second[kind]]
    print(f"differ: {', '.join(differ)}" if differ else "built twice: the same bytes")
    return 1 if differ else 0


def build_all(kinds: list[str], out: Path) -> dict[str, str]:
    """Builds these into `out` and prints a line for each. Returns each SHA-256. Raises Failed or what the build of the program does."""
    out.mkdir(parents=True, exist_ok=True)
    digests = {}
    for kind in kinds:
        path = KINDS[kind](out)
        content = path.read_bytes()
        digests[kind] = hashlib.sha256(content).hexdigest()
        print(f"{kind:5}  {len(content) / 1e6:6.1f} MB  {digests[kind]}  {path}", flush=True)
    return digests


if __name__ == "__main__":
    sys.exit(main())
