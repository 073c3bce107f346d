"""Installs the cache simulators that `make bench` compares ours with, into target/peers/bin. Never part of a build.

Downloads pycachesim's source from PyPI and compiles its C core with a small program around it (scripts/peers/pycachesim.c), and
builds the crate `cachesim` from crates.io in the same way. Needs pip, cargo and a C compiler; installs nothing outside target/.
Each peer is compiled for this machine's processor, which is more than our own build is. Knows nothing of our model or the
benchmark: any other program in that folder that follows the protocol of scripts/peers/pycachesim.c is a peer too.

    python3 scripts/install_peers.py
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "target/peers"
PYCACHESIM = "0.3.1"


def must(*command: str | Path, **options: object) -> None:
    """Runs a command; a failure ends the script and names the command."""
    if subprocess.run([str(part) for part in command], **options).returncode:
        sys.exit(f"failed: {' '.join(str(part) for part in command)}")


def pycachesim() -> None:
    """PyPI's source package, its C core without Python, and our program around it."""
    source = PEERS / "source"
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:")
    must(*pip, "--dest", source, f"pycachesim=={PYCACHESIM}")
    with tarfile.open(source / f"pycachesim-{PYCACHESIM}.tar.gz") as archive:
        archive.extractall(source, filter="data")
    core = source / f"pycachesim-{PYCACHESIM}/cachesim"
    flags = ("-std=gnu11", "-O3", "-march=native", "-flto", "-w", "-DNO_PYTHON", f"-I{core}")
    must("cc", *flags, ROOT / "scripts/peers/pycachesim.c", core / "backend.c", "-o", PEERS / "bin/pycachesim")


def cachesim(cargo: str) -> None:
    """The crate and our program around it."""
    manifest = ROOT / "scripts/peers/cachesim/Cargo.toml"
    environment = {**os.environ, "RUSTFLAGS": "-C target-cpu=native"}
    build = (cargo, "build", "--quiet", "--release", "--locked", "--manifest-path", manifest)
    must(*build, "--target-dir", PEERS / "build", env=environment)
    shutil.copy(PEERS / "build/release/cachesim", PEERS / "bin/cachesim")


def main() -> None:
    """Installs both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cargo", default="cargo", help="the cargo to build with")
    arguments = parser.parse_args()
    (PEERS / "bin").mkdir(parents=True, exist_ok=True)
    pycachesim()
    cachesim(arguments.cargo)
    names = ", ".join(sorted(path.name for path in (PEERS / "bin").iterdir()))
    print(f"installed for `make bench`: {names}")


if __name__ == "__main__":
    main()
