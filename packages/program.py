"""Builds the program of all packages, and a folder with its files as they lie on a host.

The program is built once for glibc 2.28 (Debian 10, RHEL 8 and later) with the C compiler of zig, and once static with musl for the
image. Both come from the same sources with the same flags. This module must not know any package's format.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from clients.testbed import tools

ROOT = tools.REPOSITORY
OUT = ROOT / "target/packages"
STAGE = OUT / "stage"
"""The installed files, as below /."""

GLIBC = "2.28"
"""The oldest C library on which the program runs; also in the wheel's tag."""

TARGETS = {"glibc": f"x86_64-unknown-linux-gnu.{GLIBC}", "musl": "x86_64-unknown-linux-musl"}
"""Targets of cargo-zigbuild."""

ZIG = ("ziglang==0.17.1", "cargo-zigbuild==0.24.1")
"""From PyPI; they bring a C compiler with the headers and symbol versions of old C libraries."""


def moment() -> str:
    """SOURCE_DATE_EPOCH: the time of the commit, in seconds. All times in all packages are this one."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or tools.run(["git", "log", "-1", "--format=%ct"], folder=ROOT).strip()


def version() -> str:
    """The version of the workspace."""
    lines = (ROOT / "Cargo.toml").read_text().split("[workspace.package]")[1].splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version"))


def environment() -> dict[str, str]:
    """What makes a build the same on another day and in another folder: one time, and no path of this machine in the program."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    away = [f"--remap-path-prefix={home}=/cargo", f"--remap-path-prefix={ROOT}=/waykeeper"]
    return {"SOURCE_DATE_EPOCH": moment(), "RUSTFLAGS": " ".join(away), "ZIG_GLOBAL_CACHE_DIR": str(OUT / "zig")}


def built(libc: str = "glibc") -> Path:
    """Where `build` puts the program."""
    return OUT / f"build-{libc}" / TARGETS[libc].removesuffix(f".{GLIBC}") / "release/waykeeper"


def build(libc: str = "glibc") -> Path:
    """The release program for a C library (a key of `TARGETS`). cargo decides whether there is something to do."""
    python = tools.python(*ZIG)
    program = built(libc)
    if libc == "musl":
        tools.run(["rustup", "target", "add", TARGETS[libc]], folder=ROOT)
    # cargo-zigbuild looks for zig as `python -m ziglang`, with the python that comes first.
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    words = [python.parent / "cargo-zigbuild", "zigbuild", "--release", "--locked", "-p", "waykeeper-cli"]
    # A folder of its own: in a shared one each of the two builds compiles again what the other compiled.
    words += ["--target", TARGETS[libc], "--target-dir", program.parents[2]]
    subprocess.run(
        [str(word) for word in words], cwd=ROOT, env={**os.environ, **environment(), "PATH": path}, check=True
    )
    return program


def stage(program: Path) -> Path:
    """The files of `make install` with this program, with one time and fixed rights."""
    shutil.rmtree(STAGE, ignore_errors=True)
    tools.run(["make", "--no-print-directory", "install", f"DESTDIR={STAGE}", f"PROGRAM={program}"], folder=ROOT)
    (STAGE / "etc/waykeeper/conf.d").mkdir(parents=True)
    shutil.copyfile(ROOT / "dist/waykeeper.toml", STAGE / "etc/waykeeper/waykeeper.toml")
    at = int(moment())
    for path in [STAGE, *STAGE.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        os.utime(path, (at, at))
    return STAGE
